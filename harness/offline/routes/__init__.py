"""Routes: which attention and sampling path SGLang's own dispatch code takes on a described target.

The map, from the command inwards; each module says at its head what it does:

    survey, showing        all routes of one version, and what two versions differ in; routes as text
    known                  routes held against the reviewed departures of cases/routes.toml
    judge                  one route: the backend, whether it is the fast path, the gate that sent it away, what brings it back
    dispatch               SGLang's choice of an attention backend, run from its sources
    heads, sampling, tables    head counts in the AITER and DSA backends; the sampling back end; head tables copied from AITER
    slicing, linking, parsing  a function cut down to what decides, run without importing its module; the modules parsed once
    objects, world         what the sources are told: SGLang's own objects under description; torch, os and the installed packages
    facts                  cases/routes.toml, read and checked

Where a change goes:

    a new model or target      no code: cases/models.toml and [models.NAME] of cases/routes.toml; cases/targets.toml
    a new fact                 no code: cases/routes.toml; a new field of it: `facts`
    a reviewed departure       no code: [[known]] of cases/routes.toml
    a new gate                 none, where SGLang's dispatch asks it: it is run, and `judge` names it; one in a backend's constructor: `heads`
    a name that is not described   `world` (outside SGLang) or `objects` (SGLang's own): what nobody described raises, and the message names it
"""
