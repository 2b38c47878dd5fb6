"""Capacity: predict the daily cost of a frame from a sample of its rows, before a job is run."""

from tiltframe.capacity.prediction import Capacity, LevelCapacity, explain

__all__ = ["Capacity", "LevelCapacity", "explain"]
