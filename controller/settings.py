"""Settings of the API, the control centre and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
    model_validator,
)

from controller.auto_balance import BalanceRule
from controller.host_aliases import HostNaming
from controller.oidc_mapping import OidcRule, is_loopback, is_private_address
from registry.admin import Periods
from registry.hosts import DEFAULT_URI_POLICY, UriPolicy
from registry.ledger import MAX_TIMEOUT_S, SHUTDOWN_TIMEOUT_S
from service.settings import SharedSettings
from service.socket_addresses import split_address

#: Kinds of failure domains: a host, the hosts of a zone, the hosts of one label KEY=value.
FAILURE_DOMAIN: Final = r"^(host|zone|label:[^\s:=]+)$"


class ZonePolicy(BaseModel):
    """The policy of one zone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class ControllerSettings(SharedSettings):
    """Settings of `fuga api`, `fuga control` and the commands: ``FUGA_*`` or a TOML file."""

    slot_length_s: PositiveFloat = 60
    policy: str = Field("fuga", description="Policy of each round (see `fuga solve --list`).")
    policy_parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Parameters of the policy, as in a problem file of `fuga solve`.",
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
        default_factory=dict, description="Parameters of the shadow policy."
    )
    shadow_zone_policies: dict[str, ZonePolicy] | None = Field(
        None,
        description="Shadow policy by zone, for hosts labelled zone=NAME; {}: the shadow policy"
        " decides everywhere. None: zones keep the policies that they have in the round.",
    )
    shadow_deadline_s: PositiveFloat | None = Field(
        None,
        description="Time after which the shadow policy of a round is killed; default: one slot.",
    )
    fairness_memory_s: NonNegativeInt = Field(
        0,
        description="Half-life of what tenants held while others waited: it counts in addition"
        " to what they hold. 0: only what they hold counts.",
        le=315_360_000,
    )
    budget_units: PositiveInt = Field(
        2_000_000, description="Maximum combinations that a policy evaluates per round."
    )
    policy_deadline_s: PositiveFloat | None = Field(
        None,
        description="Time after which the policy is killed and the fallback decides; default:"
        " half a slot.",
    )
    plan_deadline_s: PositiveFloat = Field(
        60, description="Time after which a plan of moves that is not decided is given up."
    )
    plan_rest_s: NonNegativeFloat = Field(
        3600, description="Time for which a VM that moved is not moved again to balance or pack."
    )
    plan_budget_units: PositiveInt | None = Field(
        None, description="Maximum hosts weighed for VMs per plan; default: as many as it takes."
    )
    spare: str | None = Field(
        None,
        description="What may fail without its VMs lacking room elsewhere: host, zone or"
        " label:KEY; rounds keep that much free. None: nothing is kept.",
        pattern=FAILURE_DOMAIN,
    )
    spare_interval_s: PositiveFloat = Field(
        120, description="Interval at which the control centre looks whether that much is free."
    )
    make_room: Literal["off", "propose", "carry_out"] = Field(
        "off",
        description="Whether the control centre makes room by moves for requests that starve:"
        " off; propose, plans for operators to approve; carry_out.",
    )
    room_hold_s: NonNegativeFloat = Field(
        600,
        description="Time for which rounds keep the room that the moves of a plan, or spot VMs"
        " that end, free for a request.",
    )
    spot_grace_s: NonNegativeInt = Field(
        120, description="Time between telling a spot VM that it ends and ending it.", le=86_400
    )
    spot_margin: float = Field(
        0.05,
        description="Part of each resource of all hosts that new spot VMs leave free, so that"
        " ordinary VMs start without waiting for the end of spot VMs.",
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    balance: BalanceRule | None = Field(
        None,
        description="Standing rule: when the control centre balances by itself, and which plans it"
        " approves. Its hours are of its zone, UTC without one. None: nothing is balanced"
        " automatically.",
    )
    sweep_interval_s: PositiveFloat = 1
    resend_after_s: PositiveFloat = Field(
        10, description="Time after which a task that no worker took is sent again."
    )
    build_timeout_s: PositiveFloat = Field(
        600,
        description="Time after which a VM that has not started is given up on its host and,"
        " once proven "
        "absent there, decided again.",
    )
    seed: NonNegativeInt | None = Field(
        None, description="Random seed of every round; default: the start of its slot."
    )

    over_quota: Literal["refuse", "wait"] = Field(
        "refuse",
        description="What happens to requests above a quota, unless the tenant or a group sets it.",
    )

    default_quota: dict[str, NonNegativeInt] = Field(
        default_factory=dict,
        description="Limits of new tenants by resource, vms for the number of VMs, until"
        " `fuga quota set` changes them.",
    )

    host_names: HostNaming = Field(
        "own",
        description="Host names that tenants see: own, names of each tenant's own; shown, the"
        " operators' names.",
    )

    keep_inputs_days: PositiveInt = Field(
        7,
        description="Days to keep inputs and outcomes of rounds, which a replay needs.",
        le=36_500,
    )
    keep_rounds_days: PositiveInt = Field(
        400, description="Days to keep rounds, and assignments of deleted VMs.", le=36_500
    )
    keep_events_months: PositiveInt = Field(
        13,
        description="Calendar months of events to keep, in addition to the present one.",
        le=1_200,
    )
    keep_audit_months: PositiveInt = Field(
        13,
        description="Calendar months of the audit to keep, in addition to the present one.",
        le=1_200,
    )
    signing_key: Path | None = Field(
        None,
        description="File of the private key that signs rounds, on each machine of a control"
        " centre; site-key.pem in the state directory by default. `fuga db key create` makes it.",
    )
    purge_interval_s: PositiveFloat = Field(
        21_600, description="Interval at which the control centre purges what is older."
    )

    metrics_interval_s: PositiveFloat = Field(
        15, description="Minimum time between two reads of the database for /metrics."
    )
    metrics_most: PositiveInt = Field(
        500,
        description="With more hosts /metrics shows only zones, with more tenants only the"
        " largest.",
    )

    listen: str = Field("127.0.0.1:8732", description="host:port of the API.")
    uri_schemes: frozenset[str] | None = Field(
        None,
        description="Allowed schemes of libvirt URIs; None: TLS and SSH. qemu+tcp"
        " makes everybody who reaches a host's port root there: use it only in labs.",
    )
    uri_parameters: frozenset[str] = Field(
        frozenset(), description="Allowed query parameters of libvirt URIs."
    )

    on_failure: Literal["wait", "replace", "rebuild"] = Field(
        "wait",
        description="What happens to VMs of a host that is down, unless its label on_failure=... "
        "sets it: they wait for it; or, once it is fenced, those on a shared pool start elsewhere "
        "with their disks (replace), or these and all others without theirs (rebuild).",
    )
    what_if_time_s: PositiveFloat = Field(
        300,
        description="Processor time for the two simulations of a what-if; after four times as long"
        " by the clock it is given up.",
        le=86_400,
    )
    what_if_memory_mib: PositiveInt = Field(
        2048, description="Memory that a process of a what-if may use."
    )
    what_if_max_vms: PositiveInt = Field(
        200_000,
        description="Maximum VMs of past requests that a what-if lets come again, the latest.",
    )

    shutdown_timeout_s: int = Field(
        SHUTDOWN_TIMEOUT_S,
        ge=0,
        le=MAX_TIMEOUT_S,
        description="Time for a guest to shut down before its power is cut.",
    )
    default_image: str | None = Field(
        None, description="Default image of requests; None: the base volume of each host."
    )

    host_reserved: dict[str, NonNegativeInt] = Field(
        default_factory=lambda: {"vcpus": 1, "memory_mib": 2048},
        description="Amounts reserved by default on new hosts, by resource, where the capacity is "
        "detected.",
    )

    tls_cert: Path | None = Field(
        None, description="PEM file of the API's certificate and its chain; None: plain HTTP."
    )
    tls_key: Path | None = Field(None, description="PEM file of its key.")

    rate_limit_per_s: NonNegativeFloat = Field(
        500, description="Calls per second of one token; 0: no limit."
    )
    rate_limit_burst: PositiveInt = Field(
        1000, description="Calls that it may make at once after a pause."
    )
    auth_failures_per_s: NonNegativeFloat = Field(
        1, description="Calls per second without a valid token from one address; 0: no limit."
    )
    auth_failures_burst: PositiveInt = Field(
        30, description="Calls that it may make at once after a pause."
    )
    api_connections: PositiveInt = Field(
        1000, description="Maximum connections of one API process; more are closed at once."
    )
    api_connections_per_address: PositiveInt = Field(
        200,
        description="Maximum connections from one address (IPv6: /64), except `trusted_proxies`.",
    )
    api_event_streams: PositiveInt = Field(
        300,
        description="Maximum open streams of events of one API process; a third of them from one"
        " address, a sixth with one token.",
    )
    api_processes: PositiveInt = Field(
        1, description="Number of API processes: each gives out its part of the limits."
    )
    trusted_proxies: frozenset[str] = Field(
        frozenset(),
        description="Addresses or networks of proxies whose X-Forwarded-For is trusted.",
    )

    operator_token_days: NonNegativeInt = Field(
        90, description="Default lifetime of operators' tokens; 0: unlimited.", le=3650
    )

    login_hours: PositiveInt = Field(
        12,
        description="Lifetime of the token that a login gives; one by a link ends with the token"
        " that made the link, if that is earlier.",
        le=720,
    )
    oidc_issuer: str | None = Field(
        None,
        description="Address of the OpenID Connect provider that people log in at, as it names"
        " itself; None: there is none.",
    )
    oidc_client_id: str | None = Field(None, description="Our name at that provider.")
    oidc_client_secret: SecretStr | None = Field(
        None, description="Our secret there; None: we are a public client."
    )
    oidc_scopes: tuple[str, ...] = Field(
        ("openid", "profile"), description="Scopes that a login asks for; openid among them."
    )
    oidc_name_claim: str = Field(
        "preferred_username", description="Claim whose value names the login's token."
    )
    oidc_rules: tuple[OidcRule, ...] = Field(
        (),
        description="Whom the provider lets in, as which tenant or as operator: the first row"
        " whose claim has its value. Other users are refused.",
    )
    oidc_ca: Path | None = Field(
        None,
        description="PEM file of CAs that may sign the provider's certificate; None: the system's.",
    )

    url: str | None = Field(None, description="URL of the API for the command line.")
    token: SecretStr | None = Field(None, description="Token of the command line.")
    ca: Path | None = Field(
        None, description="PEM file of CAs that may sign the API's certificate; None: the system's."
    )

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, address: str) -> str:
        split_address(address)
        return address

    @model_validator(mode="after")
    def _check_certificate_has_key(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise ValueError(f"tls_cert and tls_key must be set together: {missing} is missing")
        return self

    @model_validator(mode="after")
    def _check_retention_order(self) -> Self:
        if self.keep_rounds_days < self.keep_inputs_days:
            raise ValueError(
                f"keep_rounds_days is {self.keep_rounds_days} but must be at least"
                f" keep_inputs_days, {self.keep_inputs_days}"
            )
        return self

    @model_validator(mode="after")
    def _check_provider_complete(self) -> Self:
        if self.oidc_issuer is None:
            return self
        if not is_private_address(self.oidc_issuer, local=is_loopback(self.oidc_issuer)):
            raise ValueError("oidc_issuer must be an https address (http only on this machine)")
        if self.oidc_client_id is None:
            raise ValueError("oidc_issuer needs oidc_client_id")
        if "openid" not in self.oidc_scopes:
            raise ValueError("oidc_scopes must have openid")
        return self

    @property
    def periods(self) -> Periods:
        """The retention periods of history."""
        return Periods(
            inputs_days=self.keep_inputs_days,
            rounds_days=self.keep_rounds_days,
            events_months=self.keep_events_months,
            audit_months=self.keep_audit_months,
        )

    def uri_policy(self) -> UriPolicy:
        """Return the rules for libvirt URIs of hosts."""
        return UriPolicy(
            schemes=DEFAULT_URI_POLICY.schemes if self.uri_schemes is None else self.uri_schemes,
            parameters=self.uri_parameters,
        )

    def resolved_signing_key(self) -> Path:
        """Return the file of the private key that signs rounds."""
        return (self.signing_key or self.state_dir / "site-key.pem").resolve()

    @property
    def operator_token_ttl_s(self) -> int | None:
        """Default lifetime of operators' tokens; None: unlimited."""
        return self.operator_token_days * 86_400 or None

    @property
    def decision_time_s(self) -> float:
        """Time limit of a policy's decision, by the wall clock."""
        return self.policy_deadline_s or self.slot_length_s / 2
