"""Pieces that several methods use, as plain functions of tensors."""
