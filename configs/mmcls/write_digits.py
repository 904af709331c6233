"""Write the digits of configs/mnist as the four files that mmcls's data set MNIST reads.

python configs/mmcls/write_digits.py data/mnist
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'mnist'))

from digits import Digits

UNSIGNED_BYTES = 8


def write_idx(file: Path, values: np.ndarray) -> None:
    """MNIST's own format: the type of the values, the number of dimensions, the dimensions, the values."""
    header = [UNSIGNED_BYTES << 8 | values.ndim, *values.shape]
    file.write_bytes(np.array(header, '>u4').tobytes() + values.astype(np.uint8).tobytes())


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (('train', 'train'), ('t10k', 'test')):
        digits = Digits(part)
        write_idx(folder / f'{name}-images-idx3-ubyte', (digits.images[:, 0] * 255).round().numpy())
        write_idx(folder / f'{name}-labels-idx1-ubyte', digits.labels.numpy())


if __name__ == '__main__':
    main(Path(sys.argv[1]))
