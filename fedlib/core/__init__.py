"""The round of federated learning. It knows no method and no paper.

engine       run: the rounds
given        what cannot be run
clients      who takes part, and how client functions run at many
shards       what one client holds in one round
local        the gradient, a step, descent
scoring      what a model gets right at every client
method       what a method may do
task         a network, and data divided among clients
pool         samples before they are dealt to clients, groups of a sensitive attribute,
             how rows are cut, and what cannot be trained on
userdata     a user's own arrays and tables become a pool; what is refused in them
items        a data set of items becomes a table
record       what a run leaves behind, as a table, and its models
folder       the folder of a run, from which it goes on
tree         nested dicts of tensors, and stacks of them, a row for each client
random       draws that are functions of a key
files        files that are there whole or not at all, and a hash of the sources
errors       what a number may be; messages that name value, place and remedy
"""
