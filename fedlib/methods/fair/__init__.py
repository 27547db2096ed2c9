"""Fairness among clients: one global model that serves the worst clients better.

Most change only how the server combines updates. It does so by the clients' losses or
accuracies, or by the angles between their updates.
"""
