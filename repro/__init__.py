"""The reproduction of the papers: their claims and numbers, the pipeline, the book."""
