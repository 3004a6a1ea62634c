"""Symbols: names that one platform leaves unbound or None, found in the sources of a package that is never imported.

The map, from the command inwards; each module says at its head what it does:

    accepted, showing      a report held against the accepted hits; a report as text
    package                a whole scan: its scenarios side by side, kept between runs; `hits_of` gathers every kind of hit
    scan, uses, chains     one scenario: the uses that fail in a function, whether and how callers reach it, which server flags that needs
    meaning, mentions, passing, refused    what `chains` asks: what a mention means and where one is, what callers pass, which flag values never start
    stopping               modules whose import fails, and those that import them
    greedy, inventory      the kinds of hit that are no failing use: a choice that falls to the best token, an operator without a kernel
    world, tree            a package as one scenario sees it; its files, their text and syntax
    execute, assigning, importing, conditions, comparing, expressions, calls, attributes    the evaluation of statements and expressions
    environment, shapes    what environment variables give; what the syntax of a function says before anything is evaluated
    values, frames         what a name can hold; the names, flags and handlers of a path
    failing                where a use that fails is recorded
    facts                  scenarios.toml and the configuration of a package (sglang.toml, aiter.toml)

Where a change goes:

    a new way for a use to fail     `failing` records it, with the handlers that take it in `_CAUGHT`; a value that fails when used is a `Broken`
                                    of `values`, made in `world` or `importing`
    a new kind of hit               a module beside `greedy` and `inventory`, called by `hits_of` of `package`
    a new guard                     a test that decides: `conditions` and `comparing`; a statement that ends the path or takes the error: `execute`;
                                    a way that nothing reaches: `chains`
    a new fact                      no code: scenarios.toml or the package's configuration; a new field of either: its table in `facts`
    a new package                   no code: another TOML file beside sglang.toml

Each has a small package to try it on in tests/test_symbols.py: one for the failure found, one for the guard that keeps it silent.
"""
