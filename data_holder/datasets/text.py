"""Text files and folders of text as one stream of bytes. Knows no encoding: every byte is a token, whatever it means.

A folder is one stream: its files, sorted by relative path, with one separator byte (0x00 unless told otherwise) between two
of them, none before the first or after the last. Empty files are left out as if they were absent.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_holder.datasets.dataset import Dataset
from data_holder.datasets.files import HeldFile, hold, list_files, shown
from data_holder.datasets.findings import refusal
from data_holder.datasets.options import DatasetOptions
from data_holder.datasets.streams import Piece, StreamDataset
from shared.claims.records import RecordSchema

BYTE = np.dtype(np.uint8)


def open_text(path: Path, records: RecordSchema, options: DatasetOptions) -> Dataset:
    """Samples of bytes from one file, or from all files of a folder.

    Raises:
        UnfitData: unreadable, empty, too short for one sample, or the program's records are not byte sequences.
    """
    files = list_files(path, options.suffixes) if path.is_dir() else [hold(path)]
    pieces: list[Piece] = []
    for file in files:
        if file.size:
            pieces += [_separator(options.separator)] if pieces else []
            pieces.append(_piece(file))
    if not pieces:
        raise refusal("data-empty", "holds not one byte", shown(path.name), remedy="check the path")
    return StreamDataset("text", records, BYTE, [pieces], shown(path.name))


def _piece(file: HeldFile) -> Piece:
    return Piece(file.name, file.size, BYTE, file)


def _separator(byte: int) -> Piece:
    return Piece("separator byte between files", 1, BYTE, constant=bytes([byte]))
