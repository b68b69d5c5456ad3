"""What the API, the control centre and the command line are told from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    model_validator,
)

from controller.host_names import HostNaming
from registry.ledger import MAX_TIMEOUT_S, SHUTDOWN_TIMEOUT_S
from registry.operating import Periods
from service.settings import SharedSettings


class ZonePolicy(BaseModel):
    """The policy of one zone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class ControllerSettings(SharedSettings):
    """Settings of `fuga api`, `fuga control` and the commands: ``FUGA_*`` or a TOML file."""

    slot_length_s: PositiveFloat = 60
    policy: str = Field("fuga", description="Decides each round; see `fuga solve --list`.")
    policy_parameters: dict[str, Any] = Field(
        default_factory=dict, description="Of the policy, as in a problem file of `fuga solve`."
    )
    zone_policies: dict[str, ZonePolicy] = Field(
        default_factory=dict,
        description="Policy by zone, for hosts labelled zone=NAME; elsewhere `policy` decides.",
    )
    shadow_policy: str | None = Field(
        None,
        description="Decides every recorded round a second time, without effect: what would it"
        " have done? None: nothing does.",
    )
    shadow_parameters: dict[str, Any] = Field(
        default_factory=dict, description="Of the shadow policy."
    )
    shadow_zone_policies: dict[str, ZonePolicy] | None = Field(
        None,
        description="Who decides for the shadow on hosts labelled zone=NAME; {}: the shadow policy"
        " decides everywhere. None: zones keep the policies that they have in the round.",
    )
    shadow_deadline_s: PositiveFloat | None = Field(
        None, description="After it the shadow policy is killed for this round; one slot."
    )
    budget_units: PositiveInt = Field(
        2_000_000, description="Combinations that a policy may evaluate in one round."
    )
    policy_deadline_s: PositiveFloat | None = Field(
        None, description="After it the policy is killed and the fallback decides; half a slot."
    )
    sweep_interval_s: PositiveFloat = 1
    resend_after_s: PositiveFloat = Field(
        10, description="A task that nobody picked up is sent again after this long."
    )
    build_timeout_s: PositiveFloat = Field(
        600,
        description="After it a VM that is not started is given up on its host and, once proven "
        "absent there, decided again.",
    )
    seed: NonNegativeInt | None = Field(
        None, description="Of every round; by default each round is seeded by its slot's start."
    )

    over_quota: Literal["refuse", "wait"] = Field(
        "refuse",
        description="What becomes of requests above a quota, unless the tenant or a group says.",
    )

    default_quota: dict[str, NonNegativeInt] = Field(
        default_factory=dict,
        description="By resource, vms for their number: what a tenant made from now on may have at"
        " most, until `fuga quota set` says otherwise.",
    )

    host_names: HostNaming = Field(
        "own",
        description="What tenants call hosts: own, each tenant by names of its own; shown, by the"
        " names that operators use.",
    )

    keep_inputs_days: PositiveInt = Field(
        7, description="Inputs and outcomes of rounds: what a replay needs.", le=36_500
    )
    keep_rounds_days: PositiveInt = Field(
        400, description="Rounds themselves, and where VMs were that are gone.", le=36_500
    )
    keep_events_months: PositiveInt = Field(
        13, description="Whole calendar months of events, besides the present one.", le=1_200
    )
    keep_audit_months: PositiveInt = Field(
        13, description="The same, of the audit: calls that could change something.", le=1_200
    )
    purge_interval_s: PositiveFloat = Field(
        21_600, description="How often the control centre takes what is older."
    )

    metrics_interval_s: PositiveFloat = Field(
        15, description="The database is read for /metrics at most once in this time."
    )
    metrics_most: PositiveInt = Field(
        500,
        description="Of more hosts /metrics tells zones alone, of more tenants the largest.",
    )

    listen: str = Field("127.0.0.1:8732", description="host:port of the API.")
    uri_schemes: frozenset[str] | None = Field(
        None,
        description="Schemes of libvirt URIs that hosts may have; None: TLS and SSH. qemu+tcp"
        " lets whoever reaches a host's port be root there: name it for labs alone.",
    )
    uri_parameters: frozenset[str] = Field(
        frozenset(), description="Query parameters that such URIs may carry."
    )

    on_failure: Literal["wait", "replace"] = Field(
        "wait",
        description="What becomes of VMs of a host that is down, unless its label on_failure=... "
        "says: they wait for it, or are placed elsewhere once it is fenced.",
    )
    shutdown_timeout_s: int = Field(
        SHUTDOWN_TIMEOUT_S,
        ge=0,
        le=MAX_TIMEOUT_S,
        description="Given to a guest that is to shut down, before it is forced.",
    )
    default_image: str | None = Field(
        None, description="Image of requests that name none; None: what their hosts name."
    )

    host_reserved: dict[str, NonNegativeInt] = Field(
        default_factory=lambda: {"vcpus": 1, "memory_mib": 2048},
        description="By resource, kept for a new host itself: where its capacity is what is "
        "detected, and nothing else is said.",
    )

    tls_cert: Path | None = Field(
        None, description="PEM file of the API's certificate and its chain; None: plain HTTP."
    )
    tls_key: Path | None = Field(None, description="PEM file of its key.")

    rate_limit_per_s: NonNegativeFloat = Field(
        500, description="Calls that one token may make in a second, for good; 0: no limit."
    )
    rate_limit_burst: PositiveInt = Field(1000, description="And at once, after a silence.")
    auth_failures_per_s: NonNegativeFloat = Field(
        1, description="Calls without a good token from one address in a second; 0: no limit."
    )
    auth_failures_burst: PositiveInt = Field(30, description="And at once, after a silence.")
    api_connections: PositiveInt = Field(
        1000, description="Connections that one API process holds; more are closed at once."
    )
    api_connections_per_address: PositiveInt = Field(
        200,
        description="And of one address (IPv6: /64), unless it is one of `trusted_proxies`.",
    )
    api_processes: PositiveInt = Field(
        1, description="API processes that callers meet: each gives out its part of the limits."
    )
    trusted_proxies: frozenset[str] = Field(
        frozenset(),
        description="Addresses or networks of proxies whose X-Forwarded-For is believed.",
    )

    operator_token_days: NonNegativeInt = Field(
        90, description="Life of operators' tokens that say no other; 0: for ever.", le=3650
    )

    url: str | None = Field(None, description="Where the command line finds the API.")
    token: SecretStr | None = Field(None, description="With which it speaks there.")
    ca: Path | None = Field(
        None, description="PEM file of who may vouch for the API; None: whom the system trusts."
    )

    @model_validator(mode="after")
    def _a_certificate_has_a_key(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise ValueError(f"tls_cert and tls_key go together: {missing} is missing")
        return self

    @model_validator(mode="after")
    def _summaries_outlive_inputs(self) -> Self:
        if self.keep_rounds_days < self.keep_inputs_days:
            raise ValueError(
                f"keep_rounds_days is {self.keep_rounds_days}, and has to be at least"
                f" keep_inputs_days, {self.keep_inputs_days}"
            )
        return self

    @property
    def periods(self) -> Periods:
        """How long history is kept."""
        return Periods(
            inputs_days=self.keep_inputs_days,
            rounds_days=self.keep_rounds_days,
            events_months=self.keep_events_months,
            audit_months=self.keep_audit_months,
        )

    @property
    def operator_token_ttl_s(self) -> int | None:
        """How long an operator's token lives that says nothing of it; None: for ever."""
        return self.operator_token_days * 86_400 or None

    @property
    def decision_time_s(self) -> float:
        """How long a policy may take by the wall clock."""
        return self.policy_deadline_s or self.slot_length_s / 2
