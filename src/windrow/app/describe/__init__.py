"""What is shown of clusters and machines, as values: pure functions from objects to frozen data.

The command line renders them as lines, the dashboard as HTML, so that both show the same state, sentence and reason.
Objects are read leniently: a field that is absent, or of a later version, leaves a gap and never an error.
"""
