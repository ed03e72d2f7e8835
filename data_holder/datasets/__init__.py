"""A holder's private data as records of a program: opened, checked, read by cursor. Knows no network, no SQL and no tensor library."""

from data_holder.datasets.cache import CONVERSION, forget_converted
from data_holder.datasets.dataset import Dataset, Statistics
from data_holder.datasets.files import bytes_of
from data_holder.datasets.findings import Finding, Misfit, UnfitData
from data_holder.datasets.inspection import InspectionReport, inspect_dataset
from data_holder.datasets.options import DatasetOptions, Format, GoOn, Tokenizer
from data_holder.datasets.readers import open_dataset
from data_holder.datasets.record_tree import RecordTree, forget_tree, tree_is_kept
from data_holder.datasets.scales import Look

__all__ = [
    "CONVERSION", "Dataset", "DatasetOptions", "Finding", "Format", "GoOn", "InspectionReport", "Look", "Misfit", "RecordTree",
    "Statistics", "Tokenizer", "UnfitData", "bytes_of", "forget_converted", "forget_tree", "inspect_dataset", "open_dataset",
    "tree_is_kept",
]  # fmt: skip
