"""Deployment: from simulation to devices; the same Method object, messages in place of
calls.

federation   what all parties agree on, one yaml file
rows         the tasks that follow from it: the server's, one client's
message      trees as named arrays and as bytes, never pickled
act          what a client makes of one message
client       Site: one device; shelf: where it keeps its state
masked       sums of uploads of which the server sees none
talk         the server's conversation in one round
server       serve: the round of fedlib.core.engine over an `exchange` of messages
command      python -m fedlib deploy keys | server | client
flower       the exchange over a network
gate         its one port: how many connections, and for how long
keys         who may join
"""
