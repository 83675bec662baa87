"""make_parquet.py FOLDER: writes two small Parquet files of documents, as FineWeb-Edu's, to the folder."""

import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(2):
        numbers = range(200 * part, 200 * part + 200)
        table = pyarrow.table({
            "text": [f"Document {n}: the \"quick\" brown fox,\njumps über the lazy dog {n} times.\n" for n in numbers],
            "id": [f"<urn:{n}>" for n in numbers],
            "score": [n / 7 for n in numbers],
        })
        pyarrow.parquet.write_table(table, folder / f"{part:03}_00000.parquet", row_group_size=64)


if __name__ == "__main__":
    main()
