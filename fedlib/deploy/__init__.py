"""Deployment: from simulation to devices. The same Method object and the same rounds,
with messages in place of calls.

federation   what all parties agree on: the configuration of a Flower app
rows         the tasks that follow from it: the server's, one client's
client       what a client makes of a message, and what it keeps
server       serve: the rounds of fedlib.core.engine over an `exchange` of messages
app          both as a Flower app: `flwr run`
command      python -m fedlib deploy app | keys
keys         who may join
"""
