"""Where `fuga login` keeps tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from controller.session.logins import StoredLogins, change_logins


def test_logins_at_the_same_time_lose_none(tmp_path: Path) -> None:
    path = tmp_path / "fuga" / "logins.json"
    urls = {f"https://{number}.example.org": str(number) for number in range(40)}

    def log_in(url: str) -> None:
        change_logins(path, lambda logins: logins.with_login([url], urls[url]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(log_in, urls))

    assert dict(StoredLogins.load(path).tokens) == urls
    assert path.stat().st_mode & 0o777 == 0o600
