"""Files from a real web server: fetched once, checked, kept."""

import hashlib
import os
from urllib.error import HTTPError

import pytest
import torch

from runnerkit.checkpoint import load_url
from runnerkit.checkpoint.schemes import HASH_IN_NAME


def put(web, name, content=None):
    """A checkpoint on the server; ``HASH`` in its name becomes the start of its hash."""
    path = web.folder / 'new.pth'
    torch.save({'w': torch.ones(2)} if content is None else content, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.rename(web.folder / name.replace('HASH', digest[:8])).name


def test_a_file_is_fetched_once_and_kept_in_torchs_cache(web, tmp_path):
    name = put(web, 'net-HASH.pth')
    for _ in range(2):
        assert load_url(f'{web.url}/{name}?version=2', progress=False)['w'].tolist() == [1, 1]
    assert web.asked == [f'/{name}?version=2']
    assert (tmp_path / 'TORCH_HOME' / 'hub' / 'checkpoints' / name).is_file()


def test_the_cache_may_be_another_one(web, tmp_path):
    load_url(f'{web.url}/{put(web, "net.pth")}', str(tmp_path / 'mine'), 'meta', False, file_name='other.pth')
    assert os.listdir(tmp_path / 'mine') == ['other.pth']
    assert load_url(f'{web.url}/net.pth', str(tmp_path / 'mine'), 'meta', file_name='other.pth')['w'].is_meta


@pytest.mark.parametrize('renamed', [{}, {'file_name': 'mine.pth'}])
def test_a_file_that_is_not_what_its_name_says_is_refused(web, tmp_path, renamed):
    put(web, 'net-0123abcd.pth')
    with pytest.raises(RuntimeError, match='invalid hash value .expected "0123abcd"'):
        load_url(f'{web.url}/net-0123abcd.pth', str(tmp_path / 'cache'), progress=False, **renamed)
    assert os.listdir(tmp_path / 'cache') == []


@pytest.mark.parametrize(
    'path', ['/%2F..%2F..%2Fstolen.pth', '/..%2f..%2fstolen.pth', '/a%5C..%5Cstolen.pth', '/%00.pth', '/%2e%2e']
)
def test_names_in_urls_stay_in_the_cache(web, tmp_path, path):
    """What is escaped in a URL stays so: ``%2F`` in it was a way to write any file."""
    cache = tmp_path / 'a' / 'b' / 'cache'
    before = set(tmp_path.rglob('*'))

    class Served(web.server.RequestHandlerClass.func):
        def translate_path(self, path):
            return str(web.folder / put(web, 'net.pth'))

    web.server.RequestHandlerClass = Served
    assert load_url(web.url + path, str(cache), progress=False)['w'].tolist() == [1, 1]
    new = {each for each in set(tmp_path.rglob('*')) - before if each.is_file()} - {web.folder / 'net.pth'}
    assert new == {cache / path[1:]}


@pytest.mark.parametrize(
    'path', ['', '/', '/folder/', '/..', '/a/..', '/.', '/..\\..\\x.pth', '/NUL.pth', '/' + 'a' * 250]
)
def test_urls_without_a_name_for_the_cache_are_refused(web, tmp_path, path):
    with pytest.raises(ValueError, match='gives no name for the cache: .* Give one .file_name.'):
        load_url(web.url + path, str(tmp_path / 'cache'), progress=False)
    assert web.asked == []


@pytest.mark.parametrize('name', ['/etc/stolen.pth', '../stolen.pth', 'sub/net.pth', '', '..'])
def test_a_name_that_leads_elsewhere_is_refused(web, tmp_path, name):
    with pytest.raises(ValueError, match='gives no name for the cache'):
        load_url(f'{web.url}/net.pth', str(tmp_path / 'cache'), progress=False, file_name=name)
    assert web.asked == []


def test_a_hash_may_be_insisted_on(web):
    with pytest.raises(ValueError, match='net.pth has no hash in its name'):
        load_url(f'{web.url}/net.pth', check_hash=True)
    assert web.asked == []


NAMES = {
    'resnet50-0676ba61.pth': '0676ba61',
    'vgg11_batch256_imagenet_20210208-4271cd6c.pth': '4271cd6c',
    'shufflenetv2_x0.5-f707e7126e.pth': 'f707e7126e',
    'net-43630265.pth': '43630265',
    'epoch-20210208.pth': None,
    'epoch-12.pth': None,
    'net-large.pth': None,
}


@pytest.mark.parametrize('name', NAMES)
def test_what_is_taken_for_a_hash(name):
    found = HASH_IN_NAME.search(name)
    assert (found and found[1]) == NAMES[name]


def test_code_in_a_file_is_never_run(web):
    put(web, 'evil.pth', content=os.getcwd)
    with pytest.raises(ValueError, match='could run code when loaded'):
        load_url(f'{web.url}/evil.pth', progress=False, weights_only=False)


def test_a_missing_file(web):
    with pytest.raises(HTTPError, match='404') as caught:
        load_url(f'{web.url}/missing.pth', progress=False)
    assert f'downloading {web.url}/missing.pth to ' in caught.value.__notes__[0]
