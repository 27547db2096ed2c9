"""The toys beside a frozen CLIP, under the name that the tests know."""

from goldens.numbers.toys import NAMES, towers, toy_towers

__all__ = ["NAMES", "towers", "toy_towers"]
