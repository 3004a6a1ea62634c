"""The search for inputs that nobody wrote down: hypothesis over an op's axes, one provider at a time, judged as any cell.

spans       the values an axis is tried at, the plainest first, edges more often
space       the cases of an op on a provider: possible, taken by the library, cheap enough
hunt        one search: examples, the failures found, how far errors climbed
descent     the smallest case that fails alike, axis by axis
kept        the failures of earlier runs, tried first
campaign    all the searches of a run, in turns
bounds      what of an axis a run searches, as the command line says it
regression  a failure as a row of cases/regressions/

versions    where in a list of versions something changed
grades      by what `bisect` tells versions apart: verdict, kernels, time
"""
