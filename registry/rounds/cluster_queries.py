"""The cluster as a round would see it, for callers that decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlalchemy import Connection

from registry.catalogue.resources import demands
from registry.catalogue.vm_types import get_vm_type
from registry.db.engine import Repository, retry_on_rollback
from registry.records.cluster import Accounts, CapacityView, ClusterView
from registry.records.forecast_inputs import ForecastInputs
from registry.records.requests import Counts, Rules
from registry.records.tenancy import MoveTo
from registry.requests.counts import count_vms_and_requests
from registry.requests.rules import check_rules
from registry.rounds.cluster_view import capacity_view, read_accounts, view_cluster
from registry.rounds.forecast_inputs import can_forecast, read_forecast_inputs
from registry.rounds.known_hosts import KnownHosts
from registry.tenancy.tenants import add_tenant, update_tenant
from registry.tenancy.tree import lock_tree


class ClusterQueries(Repository):
    """Reads what tenants hold, where VMs would fit, and what a change of tenants would do."""

    def accounts(self) -> Accounts:
        """Return the present holdings of all tenants, and their tree."""
        with self._database.read() as connection:
            return read_accounts(connection)

    def counts(self, tenant: str | None = None) -> Counts:
        """Return the numbers of VMs and requests, of a tenant or of all."""
        with self._database.read() as connection:
            return count_vms_and_requests(connection, tenant)

    def can_forecast(self) -> bool:
        """Return whether a policy has decided a round, which a waiting-time forecast needs."""
        with self._database.read() as connection:
            return can_forecast(connection)

    def forecast_inputs(self) -> ForecastInputs:
        """Return the inputs of a waiting-time forecast, from a bounded part of the history."""
        with self._database.read() as connection:
            return read_forecast_inputs(connection)

    def capacity(
        self, vm_type: str, *, tenant: str | None, rules: Rules, with_waiting: bool = False
    ) -> CapacityView:
        """Return the present hosts, and the hosts with VMs of the groups in a tenant's rules.

        With ``with_waiting`` the waiting requests are included.

        Raises
        ------
        NotFoundError
            If there is no such VM type.
        """
        rules = check_rules(rules, 1)
        with self._database.read() as connection:
            wanted = get_vm_type(connection, vm_type)
            demand = demands(connection, [wanted.id])[wanted.id]
            known = KnownHosts()  # of both views, the second of which reads no host again
            view = capacity_view(connection, demand, tenant, rules, known)
            if not with_waiting:
                return view
            return replace(view, cluster=view_cluster(connection, known=known))

    def preview_update(
        self, name: str, *, weight: float | None = None, move: MoveTo | None = None, actor: str
    ) -> tuple[ClusterView, ClusterView]:
        """Return the cluster before and after a tenant's update, which is rolled back."""
        return self._preview_change(
            lambda connection: update_tenant(
                connection, name, weight=weight, move=move, actor=actor
            )
        )

    def preview_add(
        self,
        name: str,
        *,
        weight: float = 1.0,
        parent: str | None = None,
        is_group: bool = False,
        default_quota: Mapping[str, int] = MappingProxyType({}),
        actor: str,
    ) -> tuple[ClusterView, ClusterView]:
        """Return the cluster before and after the addition of a tenant, which is rolled back."""
        return self._preview_change(
            lambda connection: add_tenant(
                connection,
                name,
                weight=weight,
                parent=parent,
                is_group=is_group,
                default_quota=default_quota,
                actor=actor,
            )
        )

    @retry_on_rollback
    def _preview_change(
        self, change: Callable[[Connection], object]
    ) -> tuple[ClusterView, ClusterView]:
        """Return the cluster before and after a change of tenants, which is rolled back."""
        with self._database.write_and_roll_back() as connection:
            lock_tree(connection)
            before = view_cluster(connection)
            change(connection)
            return before, view_cluster(connection)
