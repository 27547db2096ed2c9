"""Domain generalisation: clients are domains, and the model meets an unseen one."""
