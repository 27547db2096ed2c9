"""Averaging that corrects for drift, and servers that step by rules of their own."""
