"""What servers and files say, as it is shown: no control character reaches a terminal, and no key leaves in any spelling."""

from __future__ import annotations

import base64
from urllib.parse import quote

import orjson
import pytest

from critic_prm.errors import UsageError
from critic_prm.providers.addresses import check_address, secrets_in, without_keys
from critic_prm.terminal import safe_text

KEY = "sk-proj-A7bC9dE1fG3hJ5kL-mN_pQ2rS4tU6vW8xY0z"


@pytest.mark.parametrize("code", [0, 7, 8, 0x0B, 0x0D, 0x1B, 0x7F, 0x80, 0x9B, 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F)])
def test_control_characters_are_written_out(code: int) -> None:
    """ESC sequences in an error message cleared the screen and set the terminal's title."""
    assert safe_text(f"a{chr(code)}[2Jb") == f"a\\u{code:04x}[2Jb"
    assert orjson.loads(f'"{safe_text(chr(code))}"') == chr(code)


def test_all_other_text_stays() -> None:
    text = "line\n\ttab é 汉字 🙂 שלום 50% [red]x[/]"
    assert safe_text(text) == text
    assert safe_text("\ud800\u2066\u2069") == "\\ud800\\u2066\\u2069"


SPELLINGS = {
    "as it is": KEY,
    "without its last four characters": KEY[:-4],
    "a part from within": KEY[14:26],
    "with spaces": " ".join(KEY),
    "with dashes and line ends": "-\n".join(KEY),
    "in capitals": KEY.upper(),
    "percent-encoded": quote(KEY, safe=""),
    "percent-encoded whole": "".join(f"%{byte:02X}" for byte in KEY.encode()),
    "hexadecimal": KEY.encode().hex(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of more": base64.b64encode(f"Bearer {KEY} and more".encode()).decode(),
    "base64 of more, another place": base64.b64encode(f"Bearer  {KEY}".encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(b"xx" + KEY.encode()).decode(),
}


@pytest.mark.parametrize("how", SPELLINGS)
def test_a_key_is_cut_out_in_every_spelling(how: str) -> None:
    """A server that echoed all but four characters of the key, or the key with spaces between, had it kept in the cache."""
    said = without_keys(f"HTTP 401: incorrect key {SPELLINGS[how]} given", (KEY,))
    assert "[key]" in said
    assert said.startswith("HTTP 401: incorrect key ")
    assert said.endswith(" given")
    third = len(SPELLINGS[how]) // 3
    assert SPELLINGS[how][third : 2 * third] not in said


def test_other_words_stay() -> None:
    said = "HTTP 400 invalid_request: the model gpt-5 takes no temperature; İstanbul ½ ǆ"
    assert without_keys(said, (KEY, "none", "EMPTY", "")) == said
    assert without_keys("the pool is EMPTY", ("EMPTY",)) == "the pool is EMPTY"
    assert without_keys("no key here: hunter2", ("hunter2",)) == "no key here: [key]"


def test_what_an_address_hides_is_cut_out_too() -> None:
    """A password in the address went out as Basic, and came back in the label file, the cache and doctor's output."""
    secrets = secrets_in("https://ann:p%40ssw0rd%2Fx@host/v1?api-version=2024-10-21&key=AIzaSyD-12345678")
    assert secrets == ("p@ssw0rd/x", "ann:p@ssw0rd/x", "AIzaSyD-12345678")
    for said in ("p@ssw0rd/x", "ann:p@ssw0rd/x", base64.b64encode(b"ann:p@ssw0rd/x").decode(), "p%40ssw0rd%2fx"):
        assert without_keys(f"Authorization was {said}.", secrets).replace("=", "") == "Authorization was [key]."
    assert secrets_in("http://host/v1") == secrets_in(None) == ()


@pytest.mark.parametrize("url", ["http://h:99999/v1", "http://h:x/v1", "http://[::1"])
def test_an_address_without_a_valid_port_is_refused(url: str) -> None:
    """The first request failed with a ValueError."""
    with pytest.raises(UsageError, match="--base-url is not an address"):
        check_address(url)
    check_address("http://user:word@localhost:8000/v1")
