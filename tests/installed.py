"""Installed packages: a folder on the path, with metadata as an installer writes them."""


def install(folder, monkeypatch, package, code, group='runnerkit.hooks', **offers):
    """Install a package of one module; it and its metadata are on the path until the test ends.

    Args:
        folder: where it is put.
        monkeypatch: pytest's.
        package: its name, and that of its module.
        code: of its module.
        group: the group of its entry points.
        offers: the names of its entry points, each with a path to an object.
    """
    metadata = folder / f'{package}-1.0.dist-info'
    metadata.mkdir(parents=True)
    (metadata / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n')
    rows = [f'{name} = {path}' for name, path in offers.items()]
    (metadata / 'entry_points.txt').write_text('\n'.join([f'[{group}]', *rows]) + '\n')
    (folder / f'{package}.py').write_text(code)
    monkeypatch.syspath_prepend(str(folder))
