"""Scores of a classifier from its predictions."""

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


def confusion_matrix(labels: Labels, predictions: Labels, num_labels: int) -> NDArray[np.int64]:
    """How often each class (row) was predicted as each class (column)."""
    counts = np.bincount(labels * num_labels + predictions, minlength=num_labels * num_labels)
    return counts.reshape(num_labels, num_labels)


def accuracy(labels: Labels, predictions: Labels) -> float:
    return float((labels == predictions).mean()) if len(labels) else 0.0


def macro_f1(labels: Labels, predictions: Labels, num_labels: int) -> float:
    """The mean over classes of 2 TP / (2 TP + FP + FN); a class that neither occurs nor is predicted is left out."""
    matrix = confusion_matrix(labels, predictions, num_labels)
    hits = np.diag(matrix)
    total = matrix.sum(0) + matrix.sum(1)
    seen = total > 0
    return float((2 * hits[seen] / total[seen]).mean()) if seen.any() else 0.0
