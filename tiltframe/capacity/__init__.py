"""Capacity: predict the cost of a frame per day from a sample of its rows, before a job runs."""

from tiltframe.capacity.prediction import Capacity, LevelCapacity, explain

__all__ = ["Capacity", "LevelCapacity", "explain"]
