"""The round of federated learning. It knows no method and no paper."""
