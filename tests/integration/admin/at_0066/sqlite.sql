CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at DATETIME NOT NULL,
    request_id VARCHAR(64) NOT NULL,
    token_id CHAR(32),
    token VARCHAR(63),
    tenant VARCHAR(63),
    address TEXT NOT NULL,
    method VARCHAR(16) NOT NULL,
    path TEXT NOT NULL,
    route TEXT,
    subject VARCHAR(64),
    status INTEGER,
    suppressed INTEGER DEFAULT '0' NOT NULL,
    refusals JSON,
    last_at DATETIME
);
CREATE TABLE events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at DATETIME NOT NULL,
    actor TEXT NOT NULL,
    kind VARCHAR(40) NOT NULL,
    subject_type VARCHAR(20) NOT NULL,
    subject_id VARCHAR(64) NOT NULL,
    tenant VARCHAR(63),
    from_state VARCHAR(20),
    to_state VARCHAR(20),
    event VARCHAR(24),
    reason TEXT,
    data JSON NOT NULL
);
CREATE TABLE hosts (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    uri TEXT NOT NULL,
    credential VARCHAR(63),
    ssh_host_keys JSON DEFAULT '[]' NOT NULL,
    admin VARCHAR(20) NOT NULL,
    health VARCHAR(20) NOT NULL,
    labels JSON NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    domain_type VARCHAR(16) NOT NULL,
    pool TEXT NOT NULL,
    network TEXT NOT NULL,
    base_volume TEXT,
    memory_backing_mib BIGINT,
    max_builds INTEGER NOT NULL,
    last_polled_at DATETIME,
    last_error TEXT,
    missed_polls INTEGER DEFAULT '0' NOT NULL,
    last_missed_at DATETIME,
    failed_builds INTEGER DEFAULT '0' NOT NULL,
    backoff_until DATETIME,
    created_at DATETIME NOT NULL,
    fence_target TEXT,
    returning_since DATETIME,
    machine_uuid VARCHAR(36),
    found_machine_uuid VARCHAR(36),
    pool_silent_since DATETIME,
    security_model VARCHAR(32),
    shares_kept BOOLEAN,
    can_filter BOOLEAN, shared_pool VARCHAR(128), same_machine_as CHAR(32),
    CONSTRAINT pk_hosts PRIMARY KEY (id),
    CONSTRAINT ck_hosts_admin_known CHECK (admin IN ('active', 'draining', 'maintenance', 'retired')),
    CONSTRAINT ck_hosts_health_known CHECK (health IN ('enrolling', 'up', 'unreachable', 'down')),
    CONSTRAINT ck_hosts_max_builds_positive CHECK (max_builds >= 1)
);
CREATE TABLE images (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    revision INTEGER NOT NULL,
    state VARCHAR(20) NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    format VARCHAR(8) NOT NULL,
    seed_kind VARCHAR(16) NOT NULL,
    min_memory_mib BIGINT NOT NULL,
    size_bytes BIGINT,
    virtual_size_bytes BIGINT,
    source TEXT NOT NULL,
    received_bytes BIGINT DEFAULT '0' NOT NULL,
    last_error TEXT,
    lease_token CHAR(32),
    lease_owner TEXT,
    lease_until DATETIME,
    sent_at DATETIME,
    created_at DATETIME NOT NULL,
    removed_at DATETIME,
    signature TEXT,
    signed_by TEXT,
    held_at DATETIME,
    held_reason TEXT,
    CONSTRAINT pk_images PRIMARY KEY (id),
    CONSTRAINT ck_images_format_known CHECK (format IN ('qcow2', 'raw')),
    CONSTRAINT ck_images_seed_kind_known CHECK (seed_kind IN ('none', 'nocloud')),
    CONSTRAINT ck_images_sizes_known CHECK (state <> 'ready' OR (size_bytes >= 1 AND virtual_size_bytes >= 1)),
    CONSTRAINT ck_images_state_known CHECK (state IN ('importing', 'ready', 'failed', 'removed')),
    CONSTRAINT ck_images_sha256_whole CHECK (length(sha256) = 64),
    CONSTRAINT ck_images_amounts_not_negative CHECK (revision >= 1 AND min_memory_mib >= 0),
    CONSTRAINT uq_images_name_revision UNIQUE (name, revision)
);
CREATE TABLE installation_secrets (
    name VARCHAR(63) NOT NULL,
    value VARCHAR(64) NOT NULL,
    made_at DATETIME NOT NULL,
    CONSTRAINT pk_installation_secrets PRIMARY KEY (name)
);
CREATE TABLE leases (
    name VARCHAR(63) NOT NULL,
    holder TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    expires_at DATETIME NOT NULL,
    held_since DATETIME,
    CONSTRAINT pk_leases PRIMARY KEY (name)
);
CREATE TABLE monitors (
    id CHAR(32) NOT NULL,
    name TEXT NOT NULL,
    started_at DATETIME NOT NULL,
    heartbeat_at DATETIME NOT NULL,
    lease_until DATETIME NOT NULL,
    watched INTEGER NOT NULL,
    late INTEGER NOT NULL,
    CONSTRAINT pk_monitors PRIMARY KEY (id)
);
CREATE TABLE networks (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    kind VARCHAR(16),
    source TEXT,
    cidr VARCHAR(18),
    gateway VARCHAR(15),
    dns JSON NOT NULL,
    excluded JSON NOT NULL,
    created_at DATETIME NOT NULL,
    offered_to_all BOOLEAN DEFAULT 1 NOT NULL,
    isolated BOOLEAN DEFAULT 0 NOT NULL,
    filtered BOOLEAN DEFAULT 1 NOT NULL,
    CONSTRAINT pk_networks PRIMARY KEY (id),
    CONSTRAINT ck_networks_kind_known CHECK (kind IN ('network', 'bridge')),
    CONSTRAINT uq_networks_name UNIQUE (name)
);
CREATE TABLE processes (
    kind VARCHAR(63) NOT NULL,
    name TEXT NOT NULL,
    machine TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at DATETIME NOT NULL,
    heartbeat_at DATETIME NOT NULL,
    trouble TEXT, start_stamp TEXT, settings JSON, release TEXT,
    CONSTRAINT pk_processes PRIMARY KEY (kind, name)
);
CREATE TABLE resources (
    name VARCHAR(63) NOT NULL,
    unit VARCHAR(32) NOT NULL,
    position INTEGER NOT NULL,
    overhead_per_vm BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT pk_resources PRIMARY KEY (name),
    CONSTRAINT uq_resources_position UNIQUE (position)
);
CREATE TABLE rounds (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    holder TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    slot_start_at DATETIME NOT NULL,
    slot_length_s FLOAT NOT NULL,
    policy VARCHAR(63) NOT NULL,
    decided_by VARCHAR(16) NOT NULL,
    fallback_reason TEXT,
    parameters JSON NOT NULL,
    seed BIGINT NOT NULL,
    engine_version VARCHAR(63) NOT NULL,
    budget_units BIGINT,
    work BIGINT NOT NULL,
    cut BOOLEAN NOT NULL,
    inputs_digest VARCHAR(128) NOT NULL,
    shares JSON NOT NULL,
    bound FLOAT,
    fair_distance FLOAT,
    group_shares JSON DEFAULT '[]' NOT NULL,
    timings JSON NOT NULL,
    placed INTEGER NOT NULL,
    left_out INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    created_at DATETIME NOT NULL, prices JSON,
    CONSTRAINT ck_rounds_decided_by_known CHECK (decided_by IN ('policy', 'fallback'))
);
CREATE TABLE schema_serves (
    code_since VARCHAR(32) NOT NULL,
    CONSTRAINT pk_schema_serves PRIMARY KEY (code_since)
);
CREATE TABLE slot_loop (
    id INTEGER NOT NULL,
    state VARCHAR(20) NOT NULL,
    reason TEXT,
    changed_by TEXT,
    changed_at DATETIME,
    last_slot_at DATETIME,
    slot_length_s FLOAT, without_round INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT pk_slot_loop PRIMARY KEY (id),
    CONSTRAINT ck_slot_loop_state_known CHECK (state IN ('running', 'paused')),
    CONSTRAINT ck_slot_loop_one_row CHECK (id = 1)
);
CREATE TABLE tenants (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    weight FLOAT NOT NULL,
    parent_id CHAR(32),
    created_at DATETIME NOT NULL,
    is_group BOOLEAN DEFAULT 0 NOT NULL,
    removed_at DATETIME,
    over_quota VARCHAR(16),
    CONSTRAINT pk_tenants PRIMARY KEY (id),
    CONSTRAINT ck_tenants_weight_positive CHECK (weight > 0),
    CONSTRAINT fk_tenants_parent_id_tenants FOREIGN KEY(parent_id) REFERENCES tenants (id),
    CONSTRAINT uq_tenants_name UNIQUE (name)
);
CREATE TABLE vm_types (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    revision INTEGER NOT NULL,
    created_at DATETIME NOT NULL,
    limits JSON DEFAULT '{}' NOT NULL,
    CONSTRAINT pk_vm_types PRIMARY KEY (id),
    CONSTRAINT uq_vm_types_name_revision UNIQUE (name, revision)
);
CREATE TABLE host_fences (
    host_id CHAR(32) NOT NULL,
    state VARCHAR(20) NOT NULL,
    requested_by TEXT NOT NULL,
    requested_at DATETIME NOT NULL,
    epoch BIGINT,
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    retry_at DATETIME,
    fenced_at DATETIME,
    sent_at DATETIME,
    lease_token CHAR(32),
    lease_owner TEXT,
    lease_until DATETIME,
    CONSTRAINT pk_host_fences PRIMARY KEY (host_id),
    CONSTRAINT ck_host_fences_state_known CHECK (state IN ('idle', 'pending', 'running', 'failed', 'fenced')),
    CONSTRAINT fk_host_fences_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id)
);
CREATE TABLE host_reports (
    host_id CHAR(32) NOT NULL,
    report JSON NOT NULL,
    polled_at DATETIME NOT NULL,
    CONSTRAINT pk_host_reports PRIMARY KEY (host_id),
    CONSTRAINT fk_host_reports_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id)
);
CREATE TABLE image_copies (
    id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    image_id CHAR(32) NOT NULL,
    state VARCHAR(20) NOT NULL,
    disk_gib BIGINT NOT NULL,
    volume TEXT,
    uploaded_bytes BIGINT DEFAULT '0' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    interruptions INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    lease_token CHAR(32),
    lease_owner TEXT,
    lease_until DATETIME,
    sent_at DATETIME,
    present_at DATETIME,
    created_at DATETIME NOT NULL,
    host_lost_at DATETIME,
    CONSTRAINT pk_image_copies PRIMARY KEY (id),
    CONSTRAINT ck_image_copies_state_known CHECK (state IN ('absent', 'uploading', 'present', 'failed', 'removing')),
    CONSTRAINT ck_image_copies_amounts_not_negative CHECK (disk_gib >= 1 AND uploaded_bytes >= 0),
    CONSTRAINT fk_image_copies_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id),
    CONSTRAINT fk_image_copies_image_id_images FOREIGN KEY(image_id) REFERENCES images (id),
    CONSTRAINT uq_image_copies_host_id_image_id UNIQUE (host_id, image_id)
);
CREATE TABLE inventories (
    host_id CHAR(32) NOT NULL,
    resource VARCHAR(63) NOT NULL,
    detected BIGINT,
    override BIGINT,
    reserved BIGINT DEFAULT '0' NOT NULL,
    foreign_amount BIGINT DEFAULT '0' NOT NULL,
    ratio_thousandths BIGINT DEFAULT '1000' NOT NULL,
    own_ratio_thousandths BIGINT,
    committed BIGINT DEFAULT '0' NOT NULL,
    capacity BIGINT GENERATED ALWAYS AS (CASE WHEN (coalesce(override, detected, 0) - reserved - foreign_amount) > 0 THEN (coalesce(override, detected, 0) - reserved - foreign_amount) * ratio_thousandths / 1000 ELSE 0 END) STORED,
    CONSTRAINT pk_inventories PRIMARY KEY (host_id, resource),
    CONSTRAINT ck_inventories_amounts_not_negative CHECK ((detected IS NULL OR detected >= 0) AND (override IS NULL OR override >= 0) AND reserved >= 0 AND foreign_amount >= 0 AND ratio_thousandths >= 1 AND committed >= 0),
    CONSTRAINT fk_inventories_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id),
    CONSTRAINT fk_inventories_resource_resources FOREIGN KEY(resource) REFERENCES resources (name)
);
CREATE TABLE label_ratios (
    label VARCHAR(128) NOT NULL,
    resource VARCHAR(63) NOT NULL,
    ratio_thousandths BIGINT NOT NULL,
    CONSTRAINT pk_label_ratios PRIMARY KEY (label, resource),
    CONSTRAINT ck_label_ratios_ratio_positive CHECK (ratio_thousandths >= 1),
    CONSTRAINT fk_label_ratios_resource_resources FOREIGN KEY(resource) REFERENCES resources (name)
);
CREATE TABLE leftovers (
    id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    name TEXT NOT NULL,
    vm_uuid CHAR(32),
    assignment_id CHAR(32),
    lease_owner TEXT,
    lease_until DATETIME,
    sent_at DATETIME,
    found_at DATETIME NOT NULL,
    requested_by TEXT,
    CONSTRAINT pk_leftovers PRIMARY KEY (id),
    CONSTRAINT ck_leftovers_kind_known CHECK (kind IN ('domain', 'volume')),
    CONSTRAINT fk_leftovers_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id),
    CONSTRAINT uq_leftovers_host_id_kind_name UNIQUE (host_id, kind, name)
);
CREATE TABLE network_hosts (
    network_id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    source TEXT NOT NULL,
    CONSTRAINT pk_network_hosts PRIMARY KEY (network_id, host_id),
    CONSTRAINT ck_network_hosts_kind_known CHECK (kind IN ('network', 'bridge')),
    CONSTRAINT fk_network_hosts_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id),
    CONSTRAINT fk_network_hosts_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id)
);
CREATE TABLE network_offers (
    network_id CHAR(32) NOT NULL,
    tenant_id CHAR(32) NOT NULL,
    owns BOOLEAN NOT NULL,
    CONSTRAINT pk_network_offers PRIMARY KEY (network_id, tenant_id),
    CONSTRAINT fk_network_offers_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id),
    CONSTRAINT fk_network_offers_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE TABLE quotas (
    tenant_id CHAR(32) NOT NULL,
    resource VARCHAR(63) NOT NULL,
    amount BIGINT NOT NULL,
    by_default BOOLEAN DEFAULT 0 NOT NULL,
    CONSTRAINT pk_quotas PRIMARY KEY (tenant_id, resource),
    CONSTRAINT ck_quotas_amount_not_negative CHECK (amount >= 0),
    CONSTRAINT fk_quotas_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE TABLE requests (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    tenant_id CHAR(32) NOT NULL,
    vm_type_id CHAR(32) NOT NULL,
    count INTEGER NOT NULL,
    min_count INTEGER NOT NULL,
    requires JSON NOT NULL,
    hosts JSON,
    forbids JSON DEFAULT '[]' NOT NULL,
    prefers JSON DEFAULT '[]' NOT NULL,
    zone VARCHAR(128),
    spread VARCHAR(20),
    state VARCHAR(20) NOT NULL,
    waiting JSON,
    rounds_waited INTEGER DEFAULT '0' NOT NULL,
    labels JSON DEFAULT '{}' NOT NULL,
    expires_at DATETIME,
    ending_since DATETIME,
    hostname VARCHAR(253),
    created_at DATETIME NOT NULL,
    updated_at DATETIME NOT NULL, priority INTEGER DEFAULT '0' NOT NULL, spot BOOLEAN DEFAULT 0 NOT NULL, reservation_id CHAR(32),
    CONSTRAINT pk_requests PRIMARY KEY (id),
    CONSTRAINT ck_requests_state_known CHECK (state IN ('pending', 'partly_placed', 'placed', 'released', 'cancelled', 'expired')),
    CONSTRAINT ck_requests_counts_not_negative CHECK (count >= 0 AND min_count >= 1),
    CONSTRAINT fk_requests_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT fk_requests_vm_type_id_vm_types FOREIGN KEY(vm_type_id) REFERENCES vm_types (id)
);
CREATE TABLE round_inputs (
    round INTEGER NOT NULL,
    outcome JSON,
    inputs BLOB NOT NULL,
    packed_outcome BLOB,
    CONSTRAINT pk_round_inputs PRIMARY KEY (round),
    CONSTRAINT ck_round_inputs_outcome_once CHECK ((outcome IS NULL) <> (packed_outcome IS NULL)),
    CONSTRAINT fk_round_inputs_round_rounds FOREIGN KEY(round) REFERENCES rounds (number)
);
CREATE TABLE shadow_rounds (
    round INTEGER NOT NULL,
    policy VARCHAR(63) NOT NULL,
    parameters JSON NOT NULL,
    error TEXT,
    seconds FLOAT,
    cut BOOLEAN NOT NULL,
    decided JSON,
    first JSON,
    agreed INTEGER,
    shares JSON NOT NULL,
    skipped INTEGER NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_shadow_rounds PRIMARY KEY (round),
    CONSTRAINT ck_shadow_rounds_decided_or_failed CHECK ((error IS NULL) = (decided IS NOT NULL)),
    CONSTRAINT fk_shadow_rounds_round_rounds FOREIGN KEY(round) REFERENCES rounds (number)
);
CREATE TABLE ssh_keys (
    id CHAR(32) NOT NULL,
    tenant_id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    public_key TEXT NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_ssh_keys PRIMARY KEY (id),
    CONSTRAINT fk_ssh_keys_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT uq_ssh_keys_tenant_id_name UNIQUE (tenant_id, name)
);
CREATE TABLE strangers (
    host_id CHAR(32) NOT NULL,
    domain_uuid CHAR(32) NOT NULL,
    name TEXT NOT NULL,
    first_seen_at DATETIME NOT NULL,
    CONSTRAINT pk_strangers PRIMARY KEY (host_id, domain_uuid),
    CONSTRAINT fk_strangers_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id)
);
CREATE TABLE tokens (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    role VARCHAR(16) NOT NULL,
    tenant_id CHAR(32),
    digest VARCHAR(64) NOT NULL,
    created_at DATETIME NOT NULL,
    revoked_at DATETIME,
    read_only BOOLEAN DEFAULT 0 NOT NULL,
    expires_at DATETIME,
    last_used_at DATETIME, login VARCHAR(16), parent_id CHAR(32),
    CONSTRAINT pk_tokens PRIMARY KEY (id),
    CONSTRAINT ck_tokens_role_known CHECK ((role = 'operator' AND tenant_id IS NULL) OR (role = 'tenant' AND tenant_id IS NOT NULL)),
    CONSTRAINT fk_tokens_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
CREATE TABLE vm_groups (
    id CHAR(32) NOT NULL,
    tenant_id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    apart BOOLEAN NOT NULL,
    hard BOOLEAN NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_vm_groups PRIMARY KEY (id),
    CONSTRAINT fk_vm_groups_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT uq_vm_groups_tenant_id_name UNIQUE (tenant_id, name)
);
CREATE TABLE vm_type_resources (
    vm_type_id CHAR(32) NOT NULL,
    resource VARCHAR(63) NOT NULL,
    amount BIGINT NOT NULL,
    CONSTRAINT pk_vm_type_resources PRIMARY KEY (vm_type_id, resource),
    CONSTRAINT ck_vm_type_resources_amount_positive CHECK (amount >= 1),
    CONSTRAINT fk_vm_type_resources_resource_resources FOREIGN KEY(resource) REFERENCES resources (name),
    CONSTRAINT fk_vm_type_resources_vm_type_id_vm_types FOREIGN KEY(vm_type_id) REFERENCES vm_types (id)
);
CREATE TABLE build_failures (
    request_id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    avoid_until DATETIME NOT NULL,
    CONSTRAINT pk_build_failures PRIMARY KEY (request_id, host_id),
    CONSTRAINT fk_build_failures_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id),
    CONSTRAINT fk_build_failures_request_id_requests FOREIGN KEY(request_id) REFERENCES requests (id)
);
CREATE TABLE idempotency_keys (
    scope VARCHAR(128) NOT NULL,
    "key" VARCHAR(255) NOT NULL,
    fingerprint VARCHAR(128) NOT NULL,
    request_id CHAR(32),
    status INTEGER,
    body TEXT,
    started_at DATETIME NOT NULL,
    first_used_at DATETIME NOT NULL,
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (scope, "key"),
    CONSTRAINT fk_idempotency_keys_request_id_requests FOREIGN KEY(request_id) REFERENCES requests (id)
);
CREATE TABLE request_access (
    request_id CHAR(32) NOT NULL,
    ssh_keys JSON NOT NULL,
    user_data BLOB,
    user_data_bytes INTEGER NOT NULL,
    user_data_sha256 VARCHAR(64) NOT NULL,
    CONSTRAINT pk_request_access PRIMARY KEY (request_id),
    CONSTRAINT fk_request_access_request_id_requests FOREIGN KEY(request_id) REFERENCES requests (id)
);
CREATE TABLE request_groups (
    request_id CHAR(32) NOT NULL,
    group_id CHAR(32) NOT NULL,
    CONSTRAINT pk_request_groups PRIMARY KEY (request_id, group_id),
    CONSTRAINT fk_request_groups_group_id_vm_groups FOREIGN KEY(group_id) REFERENCES vm_groups (id),
    CONSTRAINT fk_request_groups_request_id_requests FOREIGN KEY(request_id) REFERENCES requests (id)
);
CREATE TABLE request_images (
    request_id CHAR(32) NOT NULL,
    image_id CHAR(32) NOT NULL,
    CONSTRAINT pk_request_images PRIMARY KEY (request_id),
    CONSTRAINT fk_request_images_image_id_images FOREIGN KEY(image_id) REFERENCES images (id),
    CONSTRAINT fk_request_images_request_id_requests FOREIGN KEY(request_id) REFERENCES requests (id)
);
CREATE TABLE request_networks (
    request_id CHAR(32) NOT NULL,
    network_id CHAR(32) NOT NULL,
    CONSTRAINT pk_request_networks PRIMARY KEY (request_id),
    CONSTRAINT fk_request_networks_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id),
    CONSTRAINT fk_request_networks_request_id_requests FOREIGN KEY(request_id) REFERENCES requests (id)
);
CREATE TABLE vms (
    id CHAR(32) NOT NULL,
    name VARCHAR(80) NOT NULL,
    request_id CHAR(32) NOT NULL,
    tenant_id CHAR(32) NOT NULL,
    desired VARCHAR(20) NOT NULL,
    observed VARCHAR(20) NOT NULL,
    generation INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    created_at DATETIME NOT NULL,
    deleted_at DATETIME,
    switched_at DATETIME,
    hostname VARCHAR(253),
    labels JSON DEFAULT '{}' NOT NULL, paused_since DATETIME, spot BOOLEAN DEFAULT 0 NOT NULL,
    CONSTRAINT pk_vms PRIMARY KEY (id),
    CONSTRAINT ck_vms_desired_known CHECK (desired IN ('running', 'stopped', 'deleted')),
    CONSTRAINT ck_vms_observed_known CHECK (observed IN ('absent', 'running', 'stopped', 'lost')),
    CONSTRAINT fk_vms_request_id_requests FOREIGN KEY(request_id) REFERENCES requests (id),
    CONSTRAINT fk_vms_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE TABLE assignments (
    id CHAR(32) NOT NULL,
    vm_id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    tenant_id CHAR(32) NOT NULL,
    round INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    state VARCHAR(20) NOT NULL,
    lease_token CHAR(32),
    lease_owner TEXT,
    lease_until DATETIME,
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    sent_at DATETIME,
    created_at DATETIME NOT NULL,
    build_began_at DATETIME,
    activated_at DATETIME,
    released_at DATETIME, disk_generation INTEGER, disk_of CHAR(32),
    CONSTRAINT pk_assignments PRIMARY KEY (id),
    CONSTRAINT ck_assignments_state_known CHECK (state IN ('reserved', 'creating', 'active', 'releasing', 'released', 'quarantined', 'arriving', 'leaving')),
    CONSTRAINT fk_assignments_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id),
    CONSTRAINT fk_assignments_round_rounds FOREIGN KEY(round) REFERENCES rounds (number),
    CONSTRAINT fk_assignments_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT fk_assignments_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id),
    CONSTRAINT uq_assignments_id_host_id UNIQUE (id, host_id),
    CONSTRAINT uq_assignments_vm_id_generation UNIQUE (vm_id, generation)
);
CREATE TABLE console_reads (
    id CHAR(32) NOT NULL,
    vm_id CHAR(32) NOT NULL,
    max_bytes INTEGER NOT NULL,
    "after" BIGINT NOT NULL,
    requested_at DATETIME NOT NULL,
    answered_at DATETIME,
    content BLOB,
    end_at BIGINT,
    error TEXT,
    CONSTRAINT pk_console_reads PRIMARY KEY (id),
    CONSTRAINT fk_console_reads_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id)
);
CREATE TABLE console_sessions (
    id CHAR(32) NOT NULL,
    vm_id CHAR(32) NOT NULL,
    state VARCHAR(16) NOT NULL,
    forced BOOLEAN NOT NULL,
    opened_at DATETIME NOT NULL,
    heartbeat_at DATETIME NOT NULL,
    sent_at DATETIME,
    reason TEXT,
    next_input BIGINT NOT NULL,
    output_end BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    lease_owner TEXT,
    lease_until DATETIME,
    CONSTRAINT pk_console_sessions PRIMARY KEY (id),
    CONSTRAINT ck_console_sessions_state_known CHECK (state IN ('waiting', 'attached', 'ended')),
    CONSTRAINT fk_console_sessions_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id)
);
CREATE TABLE interfaces (
    vm_id CHAR(32) NOT NULL,
    mac VARCHAR(17) NOT NULL,
    network_id CHAR(32),
    CONSTRAINT pk_interfaces PRIMARY KEY (vm_id),
    CONSTRAINT fk_interfaces_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id),
    CONSTRAINT fk_interfaces_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id),
    CONSTRAINT uq_interfaces_mac UNIQUE (mac)
);
CREATE TABLE network_addresses (
    network_id CHAR(32) NOT NULL,
    address BIGINT NOT NULL,
    vm_id CHAR(32),
    CONSTRAINT pk_network_addresses PRIMARY KEY (network_id, address),
    CONSTRAINT fk_network_addresses_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id),
    CONSTRAINT fk_network_addresses_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id),
    CONSTRAINT uq_network_addresses_vm_id UNIQUE (vm_id)
);
CREATE TABLE power_actions (
    vm_id CHAR(32) NOT NULL,
    state VARCHAR(20) NOT NULL,
    requested_by TEXT NOT NULL,
    requested_at DATETIME NOT NULL,
    timeout_s INTEGER NOT NULL,
    force_at DATETIME,
    signalled_at DATETIME,
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    due_at DATETIME NOT NULL,
    sent_at DATETIME,
    lease_token CHAR(32),
    lease_owner TEXT,
    lease_until DATETIME,
    CONSTRAINT pk_power_actions PRIMARY KEY (vm_id),
    CONSTRAINT ck_power_actions_state_known CHECK (state IN ('idle', 'stopping', 'shutting_down', 'starting', 'rebooting', 'restarting')),
    CONSTRAINT ck_power_actions_timeout_not_negative CHECK (timeout_s >= 0),
    CONSTRAINT fk_power_actions_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id)
);
CREATE TABLE assignment_resources (
    assignment_id CHAR(32) NOT NULL,
    resource VARCHAR(63) NOT NULL,
    host_id CHAR(32) NOT NULL,
    amount BIGINT NOT NULL,
    CONSTRAINT pk_assignment_resources PRIMARY KEY (assignment_id, resource),
    CONSTRAINT ck_assignment_resources_amount_positive CHECK (amount >= 1),
    CONSTRAINT fk_assignment_resources_assignment_id_host_id_assignments FOREIGN KEY(assignment_id, host_id) REFERENCES assignments (id, host_id),
    CONSTRAINT fk_assignment_resources_host_id_resource_inventories FOREIGN KEY(host_id, resource) REFERENCES inventories (host_id, resource)
);
CREATE TABLE console_inputs (
    session_id CHAR(32) NOT NULL,
    number BIGINT NOT NULL,
    content BLOB NOT NULL,
    CONSTRAINT pk_console_inputs PRIMARY KEY (session_id, number),
    CONSTRAINT fk_console_inputs_session_id_console_sessions FOREIGN KEY(session_id) REFERENCES console_sessions (id)
);
CREATE TABLE console_outputs (
    session_id CHAR(32) NOT NULL,
    start BIGINT NOT NULL,
    content BLOB NOT NULL,
    CONSTRAINT pk_console_outputs PRIMARY KEY (session_id, start),
    CONSTRAINT fk_console_outputs_session_id_console_sessions FOREIGN KEY(session_id) REFERENCES console_sessions (id)
);
CREATE TABLE moves (
    id CHAR(32) NOT NULL,
    vm_id CHAR(32) NOT NULL,
    from_id CHAR(32) NOT NULL,
    to_id CHAR(32) NOT NULL,
    from_host_id CHAR(32) NOT NULL,
    to_host_id CHAR(32) NOT NULL,
    state VARCHAR(20) NOT NULL,
    kind VARCHAR(8) NOT NULL,
    reason TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    requested_at DATETIME NOT NULL,
    cancelled_by TEXT,
    began_at DATETIME,
    ended_at DATETIME,
    downtime_ms BIGINT,
    total_bytes BIGINT,
    remaining_bytes BIGINT,
    rate_bytes_s BIGINT,
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    sent_at DATETIME,
    lease_token CHAR(32),
    lease_owner TEXT,
    lease_until DATETIME,
    CONSTRAINT pk_moves PRIMARY KEY (id),
    CONSTRAINT ck_moves_state_known CHECK (state IN ('pending', 'moving', 'moved', 'failed', 'cancelled')),
    CONSTRAINT ck_moves_kind_known CHECK (kind IN ('live', 'cold')),
    CONSTRAINT ck_moves_another_host CHECK (from_host_id <> to_host_id),
    CONSTRAINT fk_moves_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id),
    CONSTRAINT fk_moves_from_host_id_hosts FOREIGN KEY(from_host_id) REFERENCES hosts (id),
    CONSTRAINT fk_moves_to_host_id_hosts FOREIGN KEY(to_host_id) REFERENCES hosts (id)
);
CREATE TABLE plans (
    id CHAR(32) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    state VARCHAR(20) NOT NULL,
    arguments JSON NOT NULL,
    requested_by TEXT NOT NULL,
    requested_at DATETIME NOT NULL,
    approve BOOLEAN NOT NULL,
    approved_by TEXT,
    approved_at DATETIME,
    ended_at DATETIME,
    "before" JSON,
    "after" JSON,
    stays JSON DEFAULT '[]' NOT NULL,
    cut BOOLEAN DEFAULT 0 NOT NULL,
    inputs BLOB,
    packed_plan BLOB,
    last_error TEXT, admitted JSON, gain FLOAT,
    CONSTRAINT pk_plans PRIMARY KEY (id),
    CONSTRAINT ck_plans_state_known CHECK (state IN ('pending', 'proposed', 'approved', 'done', 'cancelled', 'failed')),
    CONSTRAINT ck_plans_kind_known CHECK (kind IN ('evacuate', 'balance', 'pack', 'room', 'repair'))
);
CREATE TABLE plan_moves (
    plan_id CHAR(32) NOT NULL,
    position INTEGER NOT NULL,
    wave INTEGER NOT NULL,
    vm_id CHAR(32) NOT NULL,
    from_host_id CHAR(32) NOT NULL,
    to_host_id CHAR(32) NOT NULL,
    why VARCHAR(16) NOT NULL,
    transfer_mib BIGINT NOT NULL,
    move_id CHAR(32),
    refused TEXT,
    CONSTRAINT pk_plan_moves PRIMARY KEY (plan_id, position),
    CONSTRAINT fk_plan_moves_plan_id_plans FOREIGN KEY(plan_id) REFERENCES plans (id),
    CONSTRAINT fk_plan_moves_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id),
    CONSTRAINT fk_plan_moves_from_host_id_hosts FOREIGN KEY(from_host_id) REFERENCES hosts (id),
    CONSTRAINT fk_plan_moves_to_host_id_hosts FOREIGN KEY(to_host_id) REFERENCES hosts (id),
    CONSTRAINT fk_plan_moves_move_id_moves FOREIGN KEY(move_id) REFERENCES moves (id)
);
CREATE TABLE "preserved_disks" (
    vm_id CHAR(32) NOT NULL,
    shared_pool VARCHAR(128) NOT NULL,
    disk_of CHAR(32) NOT NULL,
    disk_generation INTEGER NOT NULL,
    kept_at DATETIME NOT NULL,
    CONSTRAINT pk_preserved_disks PRIMARY KEY (vm_id),
    CONSTRAINT fk_preserved_disks_vm_id_vms FOREIGN KEY(vm_id) REFERENCES vms (id)
);
CREATE TABLE rolls (
    id CHAR(32) NOT NULL,
    state VARCHAR(20) NOT NULL,
    at_once INTEGER NOT NULL,
    checked INTEGER NOT NULL,
    command TEXT NOT NULL,
    empty_within_s INTEGER NOT NULL,
    run_within_s INTEGER NOT NULL,
    up_within_s INTEGER NOT NULL,
    began_by TEXT NOT NULL,
    began_at DATETIME NOT NULL,
    ended_at DATETIME,
    cancelled_by TEXT,
    last_error TEXT,
    driver TEXT NOT NULL,
    driver_token CHAR(32) NOT NULL,
    driver_lease_until DATETIME NOT NULL,
    CONSTRAINT pk_rolls PRIMARY KEY (id),
    CONSTRAINT ck_rolls_state_known CHECK (state IN ('running', 'stopped', 'done', 'cancelled')),
    CONSTRAINT ck_rolls_at_once_positive CHECK (at_once >= 1)
);
CREATE TABLE roll_hosts (
    roll_id CHAR(32) NOT NULL,
    position INTEGER NOT NULL,
    host_id CHAR(32) NOT NULL,
    turn INTEGER NOT NULL,
    phase VARCHAR(20) NOT NULL,
    since DATETIME NOT NULL,
    admin_before VARCHAR(20),
    plan_id CHAR(32),
    plans INTEGER DEFAULT '0' NOT NULL,
    error TEXT,
    CONSTRAINT pk_roll_hosts PRIMARY KEY (roll_id, position),
    CONSTRAINT ck_roll_hosts_phase_known CHECK (phase IN ('waiting', 'emptying', 'empty', 'running', 'returning', 'done', 'skipped')),
    CONSTRAINT fk_roll_hosts_roll_id_rolls FOREIGN KEY(roll_id) REFERENCES rolls (id),
    CONSTRAINT fk_roll_hosts_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id)
);
CREATE TABLE "round_hash_chain" (
    round INTEGER NOT NULL,
    previous VARCHAR(64) NOT NULL,
    content VARCHAR(64) NOT NULL,
    link VARCHAR(64) NOT NULL,
    record VARCHAR(64) NOT NULL,
    salt BLOB NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_round_hash_chain PRIMARY KEY (round)
);
CREATE TABLE login_codes (
    id CHAR(32) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    token_id CHAR(32) NOT NULL,
    read_only BOOLEAN NOT NULL,
    created_at DATETIME NOT NULL,
    expires_at DATETIME NOT NULL,
    used_at DATETIME,
    CONSTRAINT pk_login_codes PRIMARY KEY (id),
    CONSTRAINT fk_login_codes_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id),
    CONSTRAINT uq_login_codes_digest UNIQUE (digest)
);
CREATE TABLE "spot_preemptions" (
    vm_id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    request_id CHAR(32) NOT NULL,
    for_tenant VARCHAR(63) NOT NULL,
    for_request VARCHAR(63) NOT NULL,
    round BIGINT NOT NULL,
    ends_at DATETIME NOT NULL,
    CONSTRAINT pk_spot_preemptions PRIMARY KEY (vm_id)
);
CREATE TABLE "spot_room_holds" (
    request_id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    count INTEGER NOT NULL,
    until DATETIME NOT NULL,
    CONSTRAINT pk_spot_room_holds PRIMARY KEY (request_id, host_id),
    CONSTRAINT ck_spot_room_holds_count_positive CHECK (count >= 1)
);
CREATE TABLE what_ifs (
    id CHAR(32) NOT NULL,
    state VARCHAR(20) NOT NULL,
    arguments JSON NOT NULL,
    requested_by TEXT NOT NULL,
    requested_at DATETIME NOT NULL,
    began_at DATETIME,
    ended_at DATETIME,
    progress FLOAT NOT NULL,
    cancelled_by TEXT,
    last_error TEXT,
    report JSON,
    executor_id CHAR(32) NOT NULL,
    lease_until DATETIME NOT NULL,
    CONSTRAINT pk_what_ifs PRIMARY KEY (id),
    CONSTRAINT ck_what_ifs_state_known CHECK (state IN ('waiting', 'running', 'finished', 'failed', 'cancelled', 'interrupted'))
);
CREATE TABLE reservations (
    id CHAR(32) NOT NULL,
    name VARCHAR(63) NOT NULL,
    tenant_id CHAR(32) NOT NULL,
    vm_type_id CHAR(32) NOT NULL,
    count INTEGER NOT NULL,
    requires JSON NOT NULL,
    keep_from DATETIME NOT NULL,
    starts_at DATETIME NOT NULL,
    ends_at DATETIME NOT NULL,
    state VARCHAR(20) NOT NULL,
    used INTEGER DEFAULT '0' NOT NULL,
    short INTEGER DEFAULT '0' NOT NULL,
    decision JSON,
    requested_by TEXT NOT NULL,
    created_at DATETIME NOT NULL,
    decided_at DATETIME,
    CONSTRAINT pk_reservations PRIMARY KEY (id),
    CONSTRAINT ck_reservations_state_known CHECK (state IN ('pending', 'accepted', 'refused', 'in_force', 'ended', 'cancelled')),
    CONSTRAINT ck_reservations_counts_not_negative CHECK (count >= 1 AND used >= 0 AND short >= 0),
    CONSTRAINT ck_reservations_times_in_order CHECK (keep_from <= starts_at AND starts_at < ends_at),
    CONSTRAINT fk_reservations_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT fk_reservations_vm_type_id_vm_types FOREIGN KEY(vm_type_id) REFERENCES vm_types (id)
);
CREATE TABLE reservation_holds (
    reservation_id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    count INTEGER NOT NULL,
    CONSTRAINT pk_reservation_holds PRIMARY KEY (reservation_id, host_id),
    CONSTRAINT ck_reservation_holds_count_positive CHECK (count >= 1)
);
CREATE TABLE "network_former_sources" (
    network_id CHAR(32) NOT NULL,
    host_id CHAR(32) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    source TEXT NOT NULL,
    placed_until DATETIME NOT NULL,
    CONSTRAINT pk_network_former_sources PRIMARY KEY (network_id, host_id, kind, source),
    CONSTRAINT ck_network_former_sources_kind_known CHECK (kind IN ('network', 'bridge')),
    CONSTRAINT fk_network_former_sources_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id) ON DELETE CASCADE,
    CONSTRAINT fk_network_former_sources_host_id_hosts FOREIGN KEY(host_id) REFERENCES hosts (id)
);
CREATE INDEX ix_audit_at ON audit (at);
CREATE INDEX ix_audit_tenant_id ON audit (tenant, id);
CREATE INDEX ix_audit_token_id ON audit (token, id);
CREATE INDEX ix_events_kind_id ON events (kind, id);
CREATE INDEX ix_events_subject_id_id ON events (subject_id, id);
CREATE INDEX ix_events_tenant_id ON events (tenant, id);
CREATE INDEX ix_hosts_missed ON hosts (id) WHERE missed_polls > 0;
CREATE UNIQUE INDEX uq_hosts_name ON hosts (name) WHERE admin NOT IN ('retired');
CREATE UNIQUE INDEX uq_hosts_uri ON hosts (uri) WHERE admin NOT IN ('retired');
CREATE INDEX ix_images_state ON images (state);
CREATE INDEX ix_image_copies_image_id ON image_copies (image_id);
CREATE INDEX ix_image_copies_state ON image_copies (state);
CREATE INDEX ix_network_offers_tenant_id ON network_offers (tenant_id);
CREATE INDEX ix_requests_expires_at ON requests (expires_at);
CREATE INDEX ix_requests_state ON requests (state);
CREATE INDEX ix_requests_state_id ON requests (state, id);
CREATE INDEX ix_requests_tenant_id_id ON requests (tenant_id, id);
CREATE UNIQUE INDEX uq_requests_tenant_id_name ON requests (tenant_id, name) WHERE state NOT IN ('released', 'cancelled', 'expired');
CREATE UNIQUE INDEX uq_tokens_name ON tokens (name) WHERE revoked_at IS NULL;
CREATE INDEX ix_idempotency_keys_first_used_at ON idempotency_keys (first_used_at);
CREATE INDEX ix_request_groups_group_id ON request_groups (group_id);
CREATE INDEX ix_request_images_image_id ON request_images (image_id);
CREATE INDEX ix_request_networks_network_id ON request_networks (network_id);
CREATE INDEX ix_vms_id_live ON vms (id) WHERE deleted_at IS NULL;
CREATE INDEX ix_vms_name ON vms (name);
CREATE INDEX ix_vms_request_id_id ON vms (request_id, id);
CREATE INDEX ix_vms_request_id_unplaced ON vms (request_id, id) WHERE observed = 'absent' AND desired <> 'deleted';
CREATE INDEX ix_vms_tenant_id_id ON vms (tenant_id, id);
CREATE INDEX ix_vms_tenant_id_live ON vms (tenant_id, id) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX uq_vms_tenant_id_name ON vms (tenant_id, name) WHERE desired NOT IN ('deleted');
CREATE INDEX ix_assignments_host_id_unreleased ON assignments (host_id) WHERE state <> 'released';
CREATE INDEX ix_assignments_round ON assignments (round);
CREATE INDEX ix_assignments_state_unreleased ON assignments (state) WHERE state <> 'released';
CREATE UNIQUE INDEX uq_console_sessions_vm_id ON console_sessions (vm_id) WHERE state NOT IN ('ended');
CREATE INDEX ix_interfaces_network_id ON interfaces (network_id);
CREATE INDEX ix_assignment_resources_host_id_resource ON assignment_resources (host_id, resource);
CREATE UNIQUE INDEX uq_assignments_vm_id_place ON assignments (vm_id) WHERE state NOT IN ('released', 'arriving', 'leaving');
CREATE UNIQUE INDEX uq_assignments_vm_id_arriving ON assignments (vm_id) WHERE state = 'arriving';
CREATE UNIQUE INDEX uq_assignments_vm_id_leaving ON assignments (vm_id) WHERE state = 'leaving';
CREATE INDEX ix_moves_vm_id_id ON moves (vm_id, id);
CREATE INDEX ix_moves_from_host_id_id ON moves (from_host_id, id);
CREATE INDEX ix_moves_to_host_id_id ON moves (to_host_id, id);
CREATE INDEX ix_plan_moves_move_id ON plan_moves (move_id);
CREATE INDEX ix_hosts_shared_pool ON hosts (shared_pool) WHERE shared_pool IS NOT NULL;
CREATE INDEX ix_assignments_disk_of ON assignments (disk_of) WHERE disk_of IS NOT NULL;
CREATE INDEX ix_roll_hosts_host_id ON roll_hosts (host_id);
CREATE INDEX ix_tokens_parent_id ON tokens (parent_id);
CREATE INDEX ix_login_codes_token_id ON login_codes (token_id);
CREATE INDEX ix_login_codes_expires_at ON login_codes (expires_at);
CREATE INDEX ix_vms_id_spot ON vms (id) WHERE spot AND deleted_at IS NULL;
CREATE INDEX ix_requests_reservation_id ON requests (reservation_id) WHERE reservation_id IS NOT NULL;
CREATE INDEX ix_reservations_tenant_id_id ON reservations (tenant_id, id);
CREATE INDEX ix_hosts_machine_uuid ON hosts (machine_uuid) WHERE machine_uuid IS NOT NULL;
CREATE INDEX ix_vms_deleted_at ON vms (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX ix_requests_name ON requests (name);
CREATE INDEX ix_audit_subject_id ON audit (subject, id);
CREATE INDEX ix_assignments_lease_until ON assignments (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX ix_console_reads_requested_at ON console_reads (requested_at);
CREATE INDEX ix_console_sessions_heartbeat_at ON console_sessions (heartbeat_at);
CREATE INDEX ix_preserved_disks_disk_of ON preserved_disks (disk_of);
CREATE INDEX ix_moves_state_open ON moves (state) WHERE state IN ('pending', 'moving');
CREATE INDEX ix_plans_requested_by_id ON plans (requested_by, id);
CREATE INDEX ix_plans_state_open ON plans (state) WHERE state IN ('pending', 'approved');
CREATE UNIQUE INDEX uq_reservations_tenant_id_name ON reservations (tenant_id, name) WHERE state IN ('pending', 'accepted', 'in_force');
CREATE INDEX ix_reservations_open ON reservations (state) WHERE state IN ('pending', 'accepted', 'in_force');
CREATE TRIGGER ledger_refuse_over_capacity BEFORE INSERT ON assignment_resources
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment''s amounts are written once')
            WHERE EXISTS (
                SELECT 1 FROM assignment_resources
                WHERE assignment_id = NEW.assignment_id AND resource = NEW.resource);
            SELECT raise(ABORT, 'ledger: amounts belong to an unreleased assignment')
            WHERE NOT EXISTS (
                SELECT 1 FROM assignments
                WHERE id = NEW.assignment_id AND host_id = NEW.host_id AND state <> 'released');
            SELECT raise(ABORT, 'ledger: over capacity')
            WHERE NOT EXISTS (
                SELECT 1 FROM inventories
                WHERE host_id = NEW.host_id AND resource = NEW.resource
                  AND committed + NEW.amount <= capacity);
        END;
CREATE TRIGGER ledger_commit AFTER INSERT ON assignment_resources
        BEGIN
            UPDATE inventories SET committed = committed + NEW.amount
            WHERE host_id = NEW.host_id AND resource = NEW.resource;
        END;
CREATE TRIGGER ledger_release AFTER UPDATE OF state ON assignments
        WHEN OLD.state <> 'released' AND NEW.state = 'released'
        BEGIN
            UPDATE inventories SET committed = committed - (
                SELECT amount FROM assignment_resources
                WHERE assignment_id = NEW.id AND resource = inventories.resource)
            WHERE host_id = NEW.host_id AND resource IN (
                SELECT resource FROM assignment_resources WHERE assignment_id = NEW.id);
        END;
CREATE TRIGGER ledger_committed_is_the_sum BEFORE UPDATE OF committed ON inventories
        WHEN NEW.committed <> (
    SELECT coalesce(sum(held.amount), 0)
    FROM assignments AS live
    JOIN assignment_resources AS held
      ON held.assignment_id = live.id AND held.resource = NEW.resource
    WHERE live.host_id = NEW.host_id AND live.state <> 'released'
)
        BEGIN
            SELECT raise(ABORT, 'ledger: committed is the sum over unreleased assignments');
        END;
CREATE TRIGGER ledger_committed_starts_as_the_sum BEFORE INSERT ON inventories
        WHEN NEW.committed <> (
    SELECT coalesce(sum(held.amount), 0)
    FROM assignments AS live
    JOIN assignment_resources AS held
      ON held.assignment_id = live.id AND held.resource = NEW.resource
    WHERE live.host_id = NEW.host_id AND live.state <> 'released'
)
        BEGIN
            SELECT raise(ABORT, 'ledger: committed is the sum over unreleased assignments');
        END;
CREATE TRIGGER ledger_inventory_stays BEFORE UPDATE OF host_id, resource ON inventories
        WHEN NEW.host_id <> OLD.host_id OR NEW.resource <> OLD.resource
        BEGIN
            SELECT raise(ABORT, 'ledger: an inventory keeps its host and resource');
        END;
CREATE TRIGGER ledger_inventory_is_kept BEFORE DELETE ON inventories WHEN OLD.committed <> 0
        BEGIN
            SELECT raise(ABORT, 'ledger: an inventory with committed capacity stays');
        END;
CREATE TRIGGER ledger_amounts_are_immutable BEFORE UPDATE ON assignment_resources
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment''s amounts are immutable');
        END;
CREATE TRIGGER ledger_amounts_are_kept BEFORE DELETE ON assignment_resources
        WHEN EXISTS (
            SELECT 1 FROM assignments WHERE id = OLD.assignment_id AND state <> 'released')
        BEGIN
            SELECT raise(ABORT, 'ledger: the amounts of an unreleased assignment stay');
        END;
CREATE TRIGGER ledger_released_is_final BEFORE UPDATE OF state ON assignments
        WHEN OLD.state = 'released' AND NEW.state <> 'released'
        BEGIN
            SELECT raise(ABORT, 'ledger: released is final');
        END;
CREATE TRIGGER ledger_assignment_is_immutable BEFORE UPDATE OF id, vm_id, host_id, tenant_id, round, generation ON assignments
        WHEN NEW.id <> OLD.id OR NEW.vm_id <> OLD.vm_id OR NEW.host_id <> OLD.host_id
          OR NEW.tenant_id <> OLD.tenant_id OR NEW.round <> OLD.round
          OR NEW.generation <> OLD.generation
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment keeps its VM, host, round and generation');
        END;
CREATE TRIGGER ledger_assignment_is_kept BEFORE DELETE ON assignments WHEN OLD.state <> 'released'
        BEGIN
            SELECT raise(ABORT, 'ledger: an unreleased assignment stays');
        END;
CREATE TRIGGER vm_type_is_immutable BEFORE UPDATE ON vm_type_resources
        BEGIN
            SELECT raise(ABORT, 'ledger: a VM type is immutable; an edit makes a revision');
        END;
CREATE TRIGGER version_by_assignment AFTER INSERT ON assignments
        BEGIN
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
        END;
CREATE TRIGGER version_by_capacity AFTER UPDATE ON inventories WHEN NEW.capacity < OLD.capacity
        BEGIN
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
        END;
CREATE TRIGGER version_by_host AFTER UPDATE OF admin, health, labels ON hosts
        WHEN NEW.admin <> OLD.admin OR NEW.labels <> OLD.labels
          OR (OLD.health = 'up' AND NEW.health <> 'up')
        BEGIN
            UPDATE hosts SET version = version + 1 WHERE id = NEW.id;
        END;
CREATE TRIGGER version_only_rises BEFORE UPDATE OF version ON hosts WHEN NEW.version < OLD.version
        BEGIN
            SELECT raise(ABORT, 'ledger: the version of a host only rises');
        END;
CREATE TRIGGER ledger_assignment_outlives_amounts BEFORE DELETE ON assignments
        WHEN EXISTS (SELECT 1 FROM assignment_resources WHERE assignment_id = OLD.id)
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment stays as long as its amounts');
        END;
CREATE TRIGGER ledger_inventory_outlives_amounts BEFORE DELETE ON inventories
        WHEN EXISTS (
            SELECT 1 FROM assignment_resources
            WHERE host_id = OLD.host_id AND resource = OLD.resource)
        BEGIN
            SELECT raise(ABORT, 'ledger: an inventory stays as long as amounts of it');
        END;
CREATE TRIGGER ledger_one_assignment_per_vm BEFORE INSERT ON assignments
        BEGIN
            SELECT raise(ABORT, 'ledger: the VM has an unreleased assignment')
            WHERE NEW.state <> 'released' AND EXISTS (
                SELECT 1 FROM assignments
                WHERE vm_id = NEW.vm_id AND state <> 'released'
                  AND (NEW.state <> 'arriving' OR state IN ('arriving', 'leaving'))
                  AND (NEW.state = 'arriving' OR state <> 'leaving'));
            SELECT raise(ABORT, 'ledger: that assignment exists already')
            WHERE EXISTS (
                SELECT 1 FROM assignments
                WHERE id = NEW.id OR (vm_id = NEW.vm_id AND generation = NEW.generation));
        END;
INSERT INTO resources (name, unit, position, overhead_per_vm) VALUES ('vcpus', 'vCPU', 0, 0);
INSERT INTO resources (name, unit, position, overhead_per_vm) VALUES ('memory_mib', 'MiB', 1, 0);
INSERT INTO resources (name, unit, position, overhead_per_vm) VALUES ('disk_gib', 'GiB', 2, 0);
INSERT INTO slot_loop (id, state, reason, changed_by, changed_at, last_slot_at, slot_length_s, without_round) VALUES (1, 'running', NULL, NULL, NULL, NULL, NULL, 0);
INSERT INTO schema_serves (code_since) VALUES ('0066');
INSERT INTO installation_secrets (name, value, made_at) VALUES ('names', '0000000000000000000000000000000000000000000000000000000000000000', '2026-11-28 08:58:16.698874');
INSERT INTO alembic_version (version_num) VALUES ('0066');
