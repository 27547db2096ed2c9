"""Domain generalisation: clients are domains, and the model meets an unseen one.

aligned   the local step of GRACE and FFT-GP: meta-learning that aligns features
gapped    what GA and FAA share: clients report what averaging costs
ga        GA: weights follow the generalisation gaps
grace     GRACE: aligned steps; consistent updates count more
faa       FAA, FAA-lagged: weights that make the gaps of the clients equal
fftgp     FFT-GP and its variants: aligned steps and FAA's weights
fedclip   FedCLIP: an adapter beside a frozen CLIP
promptfl  PromptFL: a learnt prompt for a frozen CLIP
"""
