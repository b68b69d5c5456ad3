"""The public keys of the site: the present one, and those before it with their rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select, update

from registry.audit.events import record_event
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.row_conversion import record_of
from registry.db.schema import round_hash_chain, site_keys, slot_loop
from registry.errors import ConflictError
from registry.records.proofs import SiteKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningState:
    """Whether the newest rounds are signed."""

    current: SiteKey | None
    last_round: int  #: 0: there is none
    last_signed: int  #: the newest round that the present key signed; 0: there is none
    unsigned: int  #: rounds after that one which the present key should have signed


class SiteKeys(Repository):
    """Keeps the public keys; the private one is a file (`registry.rounds.head_signatures`)."""

    def list(self) -> tuple[SiteKey, ...]:
        """Return all keys, the oldest first."""
        with self._database.read_statement() as connection:
            return _list_keys(connection)

    def current(self) -> SiteKey | None:
        """Return the present key, or None if there is none."""
        return next((each for each in self.list() if each.last_round is None), None)

    def signing_state(self) -> SigningState:
        """Return whether the newest rounds are signed by the present key."""
        chain = round_hash_chain.c
        with self._database.read() as connection:
            keys = _list_keys(connection)
            current = next((each for each in keys if each.last_round is None), None)
            last = connection.scalar(select(func.max(chain.round))) or 0
            signed = unsigned = 0
            if current is not None:
                newest = (
                    select(chain.round)
                    .where(chain.signed_by == current.public_key)
                    .where(chain.round >= current.first_round)
                    .order_by(chain.round.desc())
                    .limit(1)
                )
                signed = connection.scalar(newest) or 0
                since = max(signed + 1, current.first_round)
                count = select(func.count()).where(chain.round >= since)
                unsigned = connection.scalar(count) or 0
        return SigningState(current=current, last_round=last, last_signed=signed, unsigned=unsigned)

    @retry_on_rollback
    def add(
        self,
        public_key: str,
        *,
        instead_of: str | None,
        endorse: Callable[[int], str] | None = None,
        actor: str,
    ) -> SiteKey:
        """Make a key the present one, from the next round on.

        Parameters
        ----------
        instead_of : str or None
            The present key, which ends; None: there is none.
        endorse : callable or None
            Returns the signature by which the present key names the new one and its first round.
            None: the private key is lost, and the new key has no endorsement.

        Raises
        ------
        ConflictError
            If another key is the present one, or this key was one before.
        """
        with self._database.write() as connection:
            # A round's commit locks the same row, so no round falls between the two keys.
            connection.execute(select(slot_loop.c.state).with_for_update())
            keys = _list_keys(connection)
            current = next((each for each in keys if each.last_round is None), None)
            if (current and current.public_key) != instead_of:
                found = "none" if current is None else current.public_key
                raise ConflictError(f"the site's present key is {found}: somebody changed it")
            if any(each.public_key == public_key for each in keys):
                raise ConflictError(f"key {public_key} is or was one of this site: make a new one")
            last = connection.scalar(select(func.max(round_hash_chain.c.round))) or 0
            now = db_now(connection)
            if current is not None:
                ended = update(site_keys).where(site_keys.c.public_key == current.public_key)
                # A key that signed nothing has a last round below its first one.
                connection.execute(ended.values(last_round=last))
            made = SiteKey(
                public_key=public_key,
                first_round=last + 1,
                last_round=None,
                endorsement=None if endorse is None else endorse(last + 1),
                created_at=now,
            )
            values = {name: getattr(made, name) for name in SiteKey.__dataclass_fields__}
            connection.execute(insert(site_keys).values(**values))
            record_event(
                connection,
                now,
                actor,
                "site_key_added",
                "site_key",
                public_key,
                data={"first_round": last + 1, "instead_of": instead_of},
            )
            return made


def _list_keys(connection: Connection) -> tuple[SiteKey, ...]:
    query = select(site_keys).order_by(
        site_keys.c.first_round, site_keys.c.last_round.is_(None), site_keys.c.created_at
    )
    return tuple(record_of(SiteKey, row) for row in connection.execute(query))
