"""Names of FedGA's data sets, short enough for an axis; used by its notebooks."""

SYNTHETIC = {
    "synthetic_0_0": "Synthetic(0, 0)",
    "synthetic_05_05": "Synthetic(0.5, 0.5)",
    "synthetic_1_1": "Synthetic(1, 1)",
}
DIGITS = {
    "cifar01": "skewed labels",
    "office10_alexnet": "sites, one blurred",
    "office10_resnet18": "sites, one turned",
}
PHOTOS = {
    "cifar01": "CIFAR-10",
    "office10_alexnet": "Office, AlexNet",
    "office10_resnet18": "Office, ResNet18",
}


def short(tier: str) -> dict[str, str]:
    """{data set: name}; below tier paper digits stand in for the photos."""
    return SYNTHETIC | (PHOTOS if tier == "paper" else DIGITS)
