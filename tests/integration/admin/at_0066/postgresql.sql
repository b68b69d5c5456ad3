CREATE FUNCTION public.events_hold_readers_back() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$BEGIN
            PERFORM pg_advisory_xact_lock_shared(
                (26485::bigint << 48) | coalesce(pg_sequence_last_value('events_id_seq'), 0));
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.ledger_amounts_are_kept() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$BEGIN
            IF EXISTS (
                SELECT 1 FROM gone JOIN assignments AS live ON live.id = gone.assignment_id
                WHERE live.state <> 'released') THEN
                RAISE EXCEPTION 'ledger: the amounts of an unreleased assignment stay'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.ledger_assignment_outlives_amounts() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$BEGIN
            IF EXISTS (
                SELECT 1 FROM gone JOIN assignment_resources AS held
                  ON held.assignment_id = gone.id) THEN
                RAISE EXCEPTION 'ledger: an assignment stays as long as its amounts'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.ledger_commit() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$DECLARE
            ids uuid[] := (SELECT array_agg(DISTINCT assignment_id) FROM added);
            places uuid[] := (SELECT array_agg(DISTINCT host_id) FROM added);
        BEGIN
            -- A release of one of these assignments waits, or was before us.
            PERFORM 1 FROM assignments WHERE id = ANY (ids) ORDER BY id FOR SHARE;
            IF EXISTS (
                SELECT 1 FROM added LEFT JOIN assignments AS live
                  ON live.id = added.assignment_id AND live.host_id = added.host_id
                 AND live.id = ANY (ids)
                WHERE live.id IS NULL OR live.state = 'released') THEN
                RAISE EXCEPTION 'ledger: amounts belong to an unreleased assignment'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            PERFORM 1 FROM inventories
            WHERE host_id = ANY (places)
              AND (host_id, resource) IN (SELECT host_id, resource FROM added)
            ORDER BY host_id, resource FOR NO KEY UPDATE;
            IF EXISTS (
                SELECT 1 FROM (
                    SELECT host_id, resource, sum(amount) AS amount FROM added
                    GROUP BY host_id, resource) AS taken
                LEFT JOIN inventories AS offered
                  ON offered.host_id = taken.host_id AND offered.resource = taken.resource
                 AND offered.host_id = ANY (places)
                WHERE offered.host_id IS NULL
                   OR offered.committed + taken.amount > offered.capacity) THEN
                RAISE EXCEPTION 'ledger: over capacity'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            UPDATE inventories AS offered SET committed = offered.committed + taken.amount
            FROM (SELECT host_id, resource, sum(amount) AS amount FROM added
                  GROUP BY host_id, resource) AS taken
            WHERE offered.host_id = ANY (places)
              AND offered.host_id = taken.host_id AND offered.resource = taken.resource;
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.ledger_committed_is_the_sum() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$BEGIN
            IF EXISTS (
                SELECT 1 FROM after JOIN before USING (host_id, resource)
                WHERE after.committed <> before.committed
                  AND after.committed <> (
    SELECT coalesce(sum(held.amount), 0)
    FROM assignments AS live
    JOIN assignment_resources AS held
      ON held.assignment_id = live.id AND held.resource = after.resource
    WHERE live.host_id = after.host_id AND live.state <> 'released'
)) THEN
                RAISE EXCEPTION
                    'ledger: committed is the sum over unreleased assignments'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.ledger_inventory_outlives_amounts() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$BEGIN
            IF EXISTS (
                SELECT 1 FROM gone JOIN assignment_resources AS held
                  ON held.host_id = gone.host_id AND held.resource = gone.resource) THEN
                RAISE EXCEPTION 'ledger: an inventory stays as long as amounts of it'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.ledger_refuse() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$BEGIN
            RAISE EXCEPTION 'ledger: %', TG_ARGV[0]
                USING ERRCODE = 'integrity_constraint_violation';
        END;$$;
CREATE FUNCTION public.ledger_release() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$DECLARE
            ids uuid[] := (
                SELECT array_agg(id) FROM after JOIN before USING (id)
                WHERE before.state <> 'released' AND after.state = 'released');
        BEGIN
            IF ids IS NULL THEN
                RETURN NULL;
            END IF;
            PERFORM 1 FROM inventories
            WHERE (host_id, resource) IN (
                SELECT host_id, resource FROM assignment_resources WHERE assignment_id = ANY (ids))
            ORDER BY host_id, resource FOR NO KEY UPDATE;
            UPDATE inventories AS offered SET committed = offered.committed - freed.amount
            FROM (SELECT host_id, resource, sum(amount) AS amount FROM assignment_resources
                  WHERE assignment_id = ANY (ids) GROUP BY host_id, resource) AS freed
            WHERE offered.host_id = freed.host_id AND offered.resource = freed.resource;
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.version_by_assignment() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$DECLARE
            places uuid[] := (SELECT array_agg(DISTINCT host_id) FROM added);
        BEGIN
            PERFORM 1 FROM hosts WHERE id = ANY (places) ORDER BY id FOR NO KEY UPDATE;
            UPDATE hosts SET version = version + 1 WHERE id = ANY (places);
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.version_by_capacity() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$DECLARE
            places uuid[] := (
                SELECT array_agg(DISTINCT host_id)
                FROM after JOIN before USING (host_id, resource)
                WHERE after.capacity < before.capacity);
        BEGIN
            IF places IS NULL THEN
                RETURN NULL;
            END IF;
            PERFORM 1 FROM hosts WHERE id = ANY (places) ORDER BY id FOR NO KEY UPDATE;
            UPDATE hosts SET version = version + 1 WHERE id = ANY (places);
            RETURN NULL;
        END;$$;
CREATE FUNCTION public.version_by_host() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$BEGIN
            NEW.version := greatest(NEW.version, OLD.version + 1);
            RETURN NEW;
        END;$$;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.assignment_resources (
    assignment_id uuid NOT NULL,
    resource character varying(63) NOT NULL COLLATE pg_catalog."C",
    host_id uuid NOT NULL,
    amount bigint NOT NULL,
    CONSTRAINT ck_assignment_resources_amount_positive CHECK ((amount >= 1))
);
CREATE TABLE public.assignments (
    id uuid NOT NULL,
    vm_id uuid NOT NULL,
    host_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    round bigint NOT NULL,
    generation integer NOT NULL,
    state character varying(20) NOT NULL,
    lease_token uuid,
    lease_owner text,
    lease_until timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    last_error text,
    sent_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    build_began_at timestamp with time zone,
    activated_at timestamp with time zone,
    released_at timestamp with time zone,
    disk_generation integer,
    disk_of uuid,
    CONSTRAINT ck_assignments_state_known CHECK (((state)::text = ANY ((ARRAY['reserved'::character varying, 'creating'::character varying, 'active'::character varying, 'releasing'::character varying, 'released'::character varying, 'quarantined'::character varying, 'arriving'::character varying, 'leaving'::character varying])::text[])))
);
CREATE TABLE public.audit (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    request_id character varying(64) NOT NULL,
    token_id uuid,
    token character varying(63) COLLATE pg_catalog."C",
    tenant character varying(63) COLLATE pg_catalog."C",
    address text NOT NULL,
    method character varying(16) NOT NULL,
    path text NOT NULL,
    route text,
    subject character varying(64),
    status integer,
    suppressed integer DEFAULT 0 NOT NULL,
    refusals jsonb,
    last_at timestamp with time zone
);
CREATE SEQUENCE public.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_id_seq OWNED BY public.audit.id;
CREATE TABLE public.build_failures (
    request_id uuid NOT NULL,
    host_id uuid NOT NULL,
    avoid_until timestamp with time zone NOT NULL
);
CREATE TABLE public.console_inputs (
    session_id uuid NOT NULL,
    number bigint NOT NULL,
    content bytea NOT NULL
);
CREATE TABLE public.console_outputs (
    session_id uuid NOT NULL,
    start bigint NOT NULL,
    content bytea NOT NULL
);
CREATE TABLE public.console_reads (
    id uuid NOT NULL,
    vm_id uuid NOT NULL,
    max_bytes integer NOT NULL,
    after bigint NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    answered_at timestamp with time zone,
    content bytea,
    end_at bigint,
    error text
);
CREATE TABLE public.console_sessions (
    id uuid NOT NULL,
    vm_id uuid NOT NULL,
    state character varying(16) NOT NULL,
    forced boolean NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    reason text,
    next_input bigint NOT NULL,
    output_end bigint NOT NULL,
    epoch integer NOT NULL,
    lease_owner text,
    lease_until timestamp with time zone,
    CONSTRAINT ck_console_sessions_state_known CHECK (((state)::text = ANY ((ARRAY['waiting'::character varying, 'attached'::character varying, 'ended'::character varying])::text[])))
);
CREATE TABLE public.events (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    kind character varying(40) NOT NULL,
    subject_type character varying(20) NOT NULL,
    subject_id character varying(64) NOT NULL,
    tenant character varying(63) COLLATE pg_catalog."C",
    from_state character varying(20),
    to_state character varying(20),
    event character varying(24),
    reason text,
    data jsonb NOT NULL
);
CREATE SEQUENCE public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;
CREATE TABLE public.host_fences (
    host_id uuid NOT NULL,
    state character varying(20) NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    epoch bigint,
    attempts integer DEFAULT 0 NOT NULL,
    last_error text,
    retry_at timestamp with time zone,
    fenced_at timestamp with time zone,
    sent_at timestamp with time zone,
    lease_token uuid,
    lease_owner text,
    lease_until timestamp with time zone,
    CONSTRAINT ck_host_fences_state_known CHECK (((state)::text = ANY ((ARRAY['idle'::character varying, 'pending'::character varying, 'running'::character varying, 'failed'::character varying, 'fenced'::character varying])::text[])))
);
CREATE TABLE public.host_reports (
    host_id uuid NOT NULL,
    report jsonb NOT NULL,
    polled_at timestamp with time zone NOT NULL
);
CREATE TABLE public.hosts (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    uri text NOT NULL,
    credential character varying(63) COLLATE pg_catalog."C",
    ssh_host_keys jsonb DEFAULT '[]'::jsonb NOT NULL,
    admin character varying(20) NOT NULL,
    health character varying(20) NOT NULL,
    labels jsonb NOT NULL,
    version bigint DEFAULT '1'::bigint NOT NULL,
    domain_type character varying(16) NOT NULL,
    pool text NOT NULL,
    network text NOT NULL,
    base_volume text,
    memory_backing_mib bigint,
    max_builds integer NOT NULL,
    last_polled_at timestamp with time zone,
    last_error text,
    missed_polls integer DEFAULT 0 NOT NULL,
    last_missed_at timestamp with time zone,
    failed_builds integer DEFAULT 0 NOT NULL,
    backoff_until timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    fence_target text,
    returning_since timestamp with time zone,
    machine_uuid character varying(36),
    found_machine_uuid character varying(36),
    pool_silent_since timestamp with time zone,
    security_model character varying(32),
    shares_kept boolean,
    can_filter boolean,
    shared_pool character varying(128),
    same_machine_as uuid,
    CONSTRAINT ck_hosts_admin_known CHECK (((admin)::text = ANY ((ARRAY['active'::character varying, 'draining'::character varying, 'maintenance'::character varying, 'retired'::character varying])::text[]))),
    CONSTRAINT ck_hosts_health_known CHECK (((health)::text = ANY ((ARRAY['enrolling'::character varying, 'up'::character varying, 'unreachable'::character varying, 'down'::character varying])::text[]))),
    CONSTRAINT ck_hosts_max_builds_positive CHECK ((max_builds >= 1))
);
CREATE TABLE public.idempotency_keys (
    scope character varying(128) NOT NULL,
    key character varying(255) NOT NULL,
    fingerprint character varying(128) NOT NULL,
    request_id uuid,
    status integer,
    body text,
    started_at timestamp with time zone NOT NULL,
    first_used_at timestamp with time zone NOT NULL
);
CREATE TABLE public.image_copies (
    id uuid NOT NULL,
    host_id uuid NOT NULL,
    image_id uuid NOT NULL,
    state character varying(20) NOT NULL,
    disk_gib bigint NOT NULL,
    volume text,
    uploaded_bytes bigint DEFAULT '0'::bigint NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    interruptions integer DEFAULT 0 NOT NULL,
    last_error text,
    lease_token uuid,
    lease_owner text,
    lease_until timestamp with time zone,
    sent_at timestamp with time zone,
    present_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    host_lost_at timestamp with time zone,
    CONSTRAINT ck_image_copies_amounts_not_negative CHECK (((disk_gib >= 1) AND (uploaded_bytes >= 0))),
    CONSTRAINT ck_image_copies_state_known CHECK (((state)::text = ANY ((ARRAY['absent'::character varying, 'uploading'::character varying, 'present'::character varying, 'failed'::character varying, 'removing'::character varying])::text[])))
);
CREATE TABLE public.images (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    revision integer NOT NULL,
    state character varying(20) NOT NULL,
    sha256 character varying(64) NOT NULL,
    format character varying(8) NOT NULL,
    seed_kind character varying(16) NOT NULL,
    min_memory_mib bigint NOT NULL,
    size_bytes bigint,
    virtual_size_bytes bigint,
    source text NOT NULL,
    received_bytes bigint DEFAULT '0'::bigint NOT NULL,
    last_error text,
    lease_token uuid,
    lease_owner text,
    lease_until timestamp with time zone,
    sent_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    removed_at timestamp with time zone,
    signature text,
    signed_by text,
    held_at timestamp with time zone,
    held_reason text,
    CONSTRAINT ck_images_amounts_not_negative CHECK (((revision >= 1) AND (min_memory_mib >= 0))),
    CONSTRAINT ck_images_format_known CHECK (((format)::text = ANY ((ARRAY['qcow2'::character varying, 'raw'::character varying])::text[]))),
    CONSTRAINT ck_images_seed_kind_known CHECK (((seed_kind)::text = ANY ((ARRAY['none'::character varying, 'nocloud'::character varying])::text[]))),
    CONSTRAINT ck_images_sha256_whole CHECK ((length((sha256)::text) = 64)),
    CONSTRAINT ck_images_sizes_known CHECK ((((state)::text <> 'ready'::text) OR ((size_bytes >= 1) AND (virtual_size_bytes >= 1)))),
    CONSTRAINT ck_images_state_known CHECK (((state)::text = ANY ((ARRAY['importing'::character varying, 'ready'::character varying, 'failed'::character varying, 'removed'::character varying])::text[])))
);
CREATE TABLE public.installation_secrets (
    name character varying(63) NOT NULL,
    value character varying(64) NOT NULL,
    made_at timestamp with time zone NOT NULL
);
CREATE TABLE public.interfaces (
    vm_id uuid NOT NULL,
    mac character varying(17) NOT NULL,
    network_id uuid
);
CREATE TABLE public.inventories (
    host_id uuid NOT NULL,
    resource character varying(63) NOT NULL COLLATE pg_catalog."C",
    detected bigint,
    override bigint,
    reserved bigint DEFAULT '0'::bigint NOT NULL,
    foreign_amount bigint DEFAULT '0'::bigint NOT NULL,
    ratio_thousandths bigint DEFAULT '1000'::bigint NOT NULL,
    own_ratio_thousandths bigint,
    committed bigint DEFAULT '0'::bigint NOT NULL,
    capacity bigint GENERATED ALWAYS AS (
CASE
    WHEN (((COALESCE(override, detected, (0)::bigint) - reserved) - foreign_amount) > 0) THEN ((((COALESCE(override, detected, (0)::bigint) - reserved) - foreign_amount) * ratio_thousandths) / 1000)
    ELSE (0)::bigint
END) STORED,
    CONSTRAINT ck_inventories_amounts_not_negative CHECK ((((detected IS NULL) OR (detected >= 0)) AND ((override IS NULL) OR (override >= 0)) AND (reserved >= 0) AND (foreign_amount >= 0) AND (ratio_thousandths >= 1) AND (committed >= 0)))
);
CREATE TABLE public.label_ratios (
    label character varying(128) NOT NULL,
    resource character varying(63) NOT NULL COLLATE pg_catalog."C",
    ratio_thousandths bigint NOT NULL,
    CONSTRAINT ck_label_ratios_ratio_positive CHECK ((ratio_thousandths >= 1))
);
CREATE TABLE public.leases (
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    holder text NOT NULL,
    epoch bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    held_since timestamp with time zone
);
CREATE TABLE public.leftovers (
    id uuid NOT NULL,
    host_id uuid NOT NULL,
    kind character varying(16) NOT NULL,
    name text NOT NULL,
    vm_uuid uuid,
    assignment_id uuid,
    lease_owner text,
    lease_until timestamp with time zone,
    sent_at timestamp with time zone,
    found_at timestamp with time zone NOT NULL,
    requested_by text,
    CONSTRAINT ck_leftovers_kind_known CHECK (((kind)::text = ANY ((ARRAY['domain'::character varying, 'volume'::character varying])::text[])))
);
CREATE TABLE public.login_codes (
    id uuid NOT NULL,
    digest character varying(64) NOT NULL,
    token_id uuid NOT NULL,
    read_only boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone
);
CREATE TABLE public.monitors (
    id uuid NOT NULL,
    name text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    watched integer NOT NULL,
    late integer NOT NULL
);
CREATE TABLE public.moves (
    id uuid NOT NULL,
    vm_id uuid NOT NULL,
    from_id uuid NOT NULL,
    to_id uuid NOT NULL,
    from_host_id uuid NOT NULL,
    to_host_id uuid NOT NULL,
    state character varying(20) NOT NULL,
    kind character varying(8) NOT NULL,
    reason text NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    cancelled_by text,
    began_at timestamp with time zone,
    ended_at timestamp with time zone,
    downtime_ms bigint,
    total_bytes bigint,
    remaining_bytes bigint,
    rate_bytes_s bigint,
    attempts integer DEFAULT 0 NOT NULL,
    last_error text,
    sent_at timestamp with time zone,
    lease_token uuid,
    lease_owner text,
    lease_until timestamp with time zone,
    CONSTRAINT ck_moves_another_host CHECK ((from_host_id <> to_host_id)),
    CONSTRAINT ck_moves_kind_known CHECK (((kind)::text = ANY ((ARRAY['live'::character varying, 'cold'::character varying])::text[]))),
    CONSTRAINT ck_moves_state_known CHECK (((state)::text = ANY ((ARRAY['pending'::character varying, 'moving'::character varying, 'moved'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[])))
);
CREATE TABLE public.network_addresses (
    network_id uuid NOT NULL,
    address bigint NOT NULL,
    vm_id uuid
);
CREATE TABLE public.network_former_sources (
    network_id uuid NOT NULL,
    host_id uuid NOT NULL,
    kind character varying(16) NOT NULL,
    source text NOT NULL,
    placed_until timestamp with time zone NOT NULL,
    CONSTRAINT ck_network_former_sources_kind_known CHECK (((kind)::text = ANY ((ARRAY['network'::character varying, 'bridge'::character varying])::text[])))
);
CREATE TABLE public.network_hosts (
    network_id uuid NOT NULL,
    host_id uuid NOT NULL,
    kind character varying(16) NOT NULL,
    source text NOT NULL,
    CONSTRAINT ck_network_hosts_kind_known CHECK (((kind)::text = ANY ((ARRAY['network'::character varying, 'bridge'::character varying])::text[])))
);
CREATE TABLE public.network_offers (
    network_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    owns boolean NOT NULL
);
CREATE TABLE public.networks (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    kind character varying(16),
    source text,
    cidr character varying(18),
    gateway character varying(15),
    dns jsonb NOT NULL,
    excluded jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    offered_to_all boolean DEFAULT true NOT NULL,
    isolated boolean DEFAULT false NOT NULL,
    filtered boolean DEFAULT true NOT NULL,
    CONSTRAINT ck_networks_kind_known CHECK (((kind)::text = ANY ((ARRAY['network'::character varying, 'bridge'::character varying])::text[])))
);
CREATE TABLE public.plan_moves (
    plan_id uuid NOT NULL,
    "position" integer NOT NULL,
    wave integer NOT NULL,
    vm_id uuid NOT NULL,
    from_host_id uuid NOT NULL,
    to_host_id uuid NOT NULL,
    why character varying(16) NOT NULL,
    transfer_mib bigint NOT NULL,
    move_id uuid,
    refused text
);
CREATE TABLE public.plans (
    id uuid NOT NULL,
    kind character varying(16) NOT NULL,
    state character varying(20) NOT NULL,
    arguments jsonb NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    approve boolean NOT NULL,
    approved_by text,
    approved_at timestamp with time zone,
    ended_at timestamp with time zone,
    before jsonb,
    after jsonb,
    stays jsonb DEFAULT '[]'::jsonb NOT NULL,
    cut boolean DEFAULT false NOT NULL,
    inputs bytea,
    packed_plan bytea,
    last_error text,
    admitted jsonb,
    gain double precision,
    CONSTRAINT ck_plans_kind_known CHECK (((kind)::text = ANY ((ARRAY['evacuate'::character varying, 'balance'::character varying, 'pack'::character varying, 'room'::character varying, 'repair'::character varying])::text[]))),
    CONSTRAINT ck_plans_state_known CHECK (((state)::text = ANY ((ARRAY['pending'::character varying, 'proposed'::character varying, 'approved'::character varying, 'done'::character varying, 'cancelled'::character varying, 'failed'::character varying])::text[])))
);
CREATE TABLE public.power_actions (
    vm_id uuid NOT NULL,
    state character varying(20) NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    timeout_s integer NOT NULL,
    force_at timestamp with time zone,
    signalled_at timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    last_error text,
    due_at timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    lease_token uuid,
    lease_owner text,
    lease_until timestamp with time zone,
    CONSTRAINT ck_power_actions_state_known CHECK (((state)::text = ANY ((ARRAY['idle'::character varying, 'stopping'::character varying, 'shutting_down'::character varying, 'starting'::character varying, 'rebooting'::character varying, 'restarting'::character varying])::text[]))),
    CONSTRAINT ck_power_actions_timeout_not_negative CHECK ((timeout_s >= 0))
);
CREATE TABLE public.preserved_disks (
    vm_id uuid NOT NULL,
    shared_pool character varying(128) NOT NULL,
    disk_of uuid NOT NULL,
    disk_generation integer NOT NULL,
    kept_at timestamp with time zone NOT NULL
);
CREATE TABLE public.processes (
    kind character varying(63) NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    machine text NOT NULL,
    pid integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    trouble text,
    start_stamp text,
    settings jsonb,
    release text
);
CREATE TABLE public.quotas (
    tenant_id uuid NOT NULL,
    resource character varying(63) NOT NULL COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    by_default boolean DEFAULT false NOT NULL,
    CONSTRAINT ck_quotas_amount_not_negative CHECK ((amount >= 0))
);
CREATE TABLE public.request_access (
    request_id uuid NOT NULL,
    ssh_keys jsonb NOT NULL,
    user_data bytea,
    user_data_bytes integer NOT NULL,
    user_data_sha256 character varying(64) NOT NULL
);
CREATE TABLE public.request_groups (
    request_id uuid NOT NULL,
    group_id uuid NOT NULL
);
CREATE TABLE public.request_images (
    request_id uuid NOT NULL,
    image_id uuid NOT NULL
);
CREATE TABLE public.request_networks (
    request_id uuid NOT NULL,
    network_id uuid NOT NULL
);
CREATE TABLE public.requests (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    tenant_id uuid NOT NULL,
    vm_type_id uuid NOT NULL,
    count integer NOT NULL,
    min_count integer NOT NULL,
    requires jsonb NOT NULL,
    hosts jsonb,
    forbids jsonb DEFAULT '[]'::jsonb NOT NULL,
    prefers jsonb DEFAULT '[]'::jsonb NOT NULL,
    zone character varying(128),
    spread character varying(20),
    state character varying(20) NOT NULL,
    waiting jsonb,
    rounds_waited integer DEFAULT 0 NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    expires_at timestamp with time zone,
    ending_since timestamp with time zone,
    hostname character varying(253),
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    spot boolean DEFAULT false NOT NULL,
    reservation_id uuid,
    CONSTRAINT ck_requests_counts_not_negative CHECK (((count >= 0) AND (min_count >= 1))),
    CONSTRAINT ck_requests_state_known CHECK (((state)::text = ANY ((ARRAY['pending'::character varying, 'partly_placed'::character varying, 'placed'::character varying, 'released'::character varying, 'cancelled'::character varying, 'expired'::character varying])::text[])))
);
CREATE TABLE public.reservation_holds (
    reservation_id uuid NOT NULL,
    host_id uuid NOT NULL,
    count integer NOT NULL,
    CONSTRAINT ck_reservation_holds_count_positive CHECK ((count >= 1))
);
CREATE TABLE public.reservations (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    tenant_id uuid NOT NULL,
    vm_type_id uuid NOT NULL,
    count integer NOT NULL,
    requires jsonb NOT NULL,
    keep_from timestamp with time zone NOT NULL,
    starts_at timestamp with time zone NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    state character varying(20) NOT NULL,
    used integer DEFAULT 0 NOT NULL,
    short integer DEFAULT 0 NOT NULL,
    decision jsonb,
    requested_by text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    decided_at timestamp with time zone,
    CONSTRAINT ck_reservations_counts_not_negative CHECK (((count >= 1) AND (used >= 0) AND (short >= 0))),
    CONSTRAINT ck_reservations_state_known CHECK (((state)::text = ANY ((ARRAY['pending'::character varying, 'accepted'::character varying, 'refused'::character varying, 'in_force'::character varying, 'ended'::character varying, 'cancelled'::character varying])::text[]))),
    CONSTRAINT ck_reservations_times_in_order CHECK (((keep_from <= starts_at) AND (starts_at < ends_at)))
);
CREATE TABLE public.resources (
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    unit character varying(32) NOT NULL,
    "position" integer NOT NULL,
    overhead_per_vm bigint DEFAULT '0'::bigint NOT NULL
);
CREATE TABLE public.roll_hosts (
    roll_id uuid NOT NULL,
    "position" integer NOT NULL,
    host_id uuid NOT NULL,
    turn integer NOT NULL,
    phase character varying(20) NOT NULL,
    since timestamp with time zone NOT NULL,
    admin_before character varying(20),
    plan_id uuid,
    plans integer DEFAULT 0 NOT NULL,
    error text,
    CONSTRAINT ck_roll_hosts_phase_known CHECK (((phase)::text = ANY ((ARRAY['waiting'::character varying, 'emptying'::character varying, 'empty'::character varying, 'running'::character varying, 'returning'::character varying, 'done'::character varying, 'skipped'::character varying])::text[])))
);
CREATE TABLE public.rolls (
    id uuid NOT NULL,
    state character varying(20) NOT NULL,
    at_once integer NOT NULL,
    checked integer NOT NULL,
    command text NOT NULL,
    empty_within_s integer NOT NULL,
    run_within_s integer NOT NULL,
    up_within_s integer NOT NULL,
    began_by text NOT NULL,
    began_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    cancelled_by text,
    last_error text,
    driver text NOT NULL,
    driver_token uuid NOT NULL,
    driver_lease_until timestamp with time zone NOT NULL,
    CONSTRAINT ck_rolls_at_once_positive CHECK ((at_once >= 1)),
    CONSTRAINT ck_rolls_state_known CHECK (((state)::text = ANY ((ARRAY['running'::character varying, 'stopped'::character varying, 'done'::character varying, 'cancelled'::character varying])::text[])))
);
CREATE TABLE public.round_hash_chain (
    round bigint NOT NULL,
    previous character varying(64) NOT NULL,
    content character varying(64) NOT NULL,
    link character varying(64) NOT NULL,
    record character varying(64) NOT NULL,
    salt bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.round_inputs (
    round bigint NOT NULL,
    outcome jsonb,
    inputs bytea NOT NULL,
    packed_outcome bytea,
    CONSTRAINT ck_round_inputs_outcome_once CHECK (((outcome IS NULL) <> (packed_outcome IS NULL)))
);
CREATE TABLE public.rounds (
    number bigint NOT NULL,
    holder text NOT NULL,
    epoch bigint NOT NULL,
    slot_start_at timestamp with time zone NOT NULL,
    slot_length_s double precision NOT NULL,
    policy character varying(63) NOT NULL,
    decided_by character varying(16) NOT NULL,
    fallback_reason text,
    parameters jsonb NOT NULL,
    seed bigint NOT NULL,
    engine_version character varying(63) NOT NULL,
    budget_units bigint,
    work bigint NOT NULL,
    cut boolean NOT NULL,
    inputs_digest character varying(128) NOT NULL,
    shares jsonb NOT NULL,
    bound double precision,
    fair_distance double precision,
    group_shares jsonb DEFAULT '[]'::jsonb NOT NULL,
    timings jsonb NOT NULL,
    placed integer NOT NULL,
    left_out integer NOT NULL,
    dropped integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    prices jsonb,
    CONSTRAINT ck_rounds_decided_by_known CHECK (((decided_by)::text = ANY ((ARRAY['policy'::character varying, 'fallback'::character varying])::text[])))
);
CREATE SEQUENCE public.rounds_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.rounds_number_seq OWNED BY public.rounds.number;
CREATE TABLE public.schema_serves (
    code_since character varying(32) NOT NULL
);
CREATE TABLE public.shadow_rounds (
    round bigint NOT NULL,
    policy character varying(63) NOT NULL,
    parameters jsonb NOT NULL,
    error text,
    seconds double precision,
    cut boolean NOT NULL,
    decided jsonb,
    first jsonb,
    agreed integer,
    shares jsonb NOT NULL,
    skipped integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_shadow_rounds_decided_or_failed CHECK (((error IS NULL) = (decided IS NOT NULL)))
);
CREATE TABLE public.slot_loop (
    id integer NOT NULL,
    state character varying(20) NOT NULL,
    reason text,
    changed_by text,
    changed_at timestamp with time zone,
    last_slot_at timestamp with time zone,
    slot_length_s double precision,
    without_round integer DEFAULT 0 NOT NULL,
    CONSTRAINT ck_slot_loop_one_row CHECK ((id = 1)),
    CONSTRAINT ck_slot_loop_state_known CHECK (((state)::text = ANY ((ARRAY['running'::character varying, 'paused'::character varying])::text[])))
);
CREATE TABLE public.spot_preemptions (
    vm_id uuid NOT NULL,
    host_id uuid NOT NULL,
    request_id uuid NOT NULL,
    for_tenant character varying(63) NOT NULL COLLATE pg_catalog."C",
    for_request character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    ends_at timestamp with time zone NOT NULL
);
CREATE TABLE public.spot_room_holds (
    request_id uuid NOT NULL,
    host_id uuid NOT NULL,
    count integer NOT NULL,
    until timestamp with time zone NOT NULL,
    CONSTRAINT ck_spot_room_holds_count_positive CHECK ((count >= 1))
);
CREATE TABLE public.ssh_keys (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    public_key text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.strangers (
    host_id uuid NOT NULL,
    domain_uuid uuid NOT NULL,
    name text NOT NULL,
    first_seen_at timestamp with time zone NOT NULL
);
CREATE TABLE public.tenants (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    weight double precision NOT NULL,
    parent_id uuid,
    created_at timestamp with time zone NOT NULL,
    is_group boolean DEFAULT false NOT NULL,
    removed_at timestamp with time zone,
    over_quota character varying(16),
    CONSTRAINT ck_tenants_weight_positive CHECK ((weight > (0)::double precision))
);
CREATE TABLE public.tokens (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    role character varying(16) NOT NULL,
    tenant_id uuid,
    digest character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    read_only boolean DEFAULT false NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    login character varying(16),
    parent_id uuid,
    CONSTRAINT ck_tokens_role_known CHECK (((((role)::text = 'operator'::text) AND (tenant_id IS NULL)) OR (((role)::text = 'tenant'::text) AND (tenant_id IS NOT NULL))))
);
CREATE TABLE public.vm_groups (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    apart boolean NOT NULL,
    hard boolean NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.vm_type_resources (
    vm_type_id uuid NOT NULL,
    resource character varying(63) NOT NULL COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    CONSTRAINT ck_vm_type_resources_amount_positive CHECK ((amount >= 1))
);
CREATE TABLE public.vm_types (
    id uuid NOT NULL,
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    revision integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    limits jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE TABLE public.vms (
    id uuid NOT NULL,
    name character varying(80) NOT NULL,
    request_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    desired character varying(20) NOT NULL,
    observed character varying(20) NOT NULL,
    generation integer DEFAULT 0 NOT NULL,
    last_error text,
    created_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone,
    switched_at timestamp with time zone,
    hostname character varying(253),
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    paused_since timestamp with time zone,
    spot boolean DEFAULT false NOT NULL,
    CONSTRAINT ck_vms_desired_known CHECK (((desired)::text = ANY ((ARRAY['running'::character varying, 'stopped'::character varying, 'deleted'::character varying])::text[]))),
    CONSTRAINT ck_vms_observed_known CHECK (((observed)::text = ANY ((ARRAY['absent'::character varying, 'running'::character varying, 'stopped'::character varying, 'lost'::character varying])::text[])))
)
WITH (fillfactor='50');
CREATE TABLE public.what_ifs (
    id uuid NOT NULL,
    state character varying(20) NOT NULL,
    arguments jsonb NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    began_at timestamp with time zone,
    ended_at timestamp with time zone,
    progress double precision NOT NULL,
    cancelled_by text,
    last_error text,
    report jsonb,
    executor_id uuid NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    CONSTRAINT ck_what_ifs_state_known CHECK (((state)::text = ANY ((ARRAY['waiting'::character varying, 'running'::character varying, 'finished'::character varying, 'failed'::character varying, 'cancelled'::character varying, 'interrupted'::character varying])::text[])))
);
ALTER TABLE ONLY public.audit ALTER COLUMN id SET DEFAULT nextval('public.audit_id_seq'::regclass);
ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);
ALTER TABLE ONLY public.rounds ALTER COLUMN number SET DEFAULT nextval('public.rounds_number_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0066');
INSERT INTO public.installation_secrets VALUES ('names', '0000000000000000000000000000000000000000000000000000000000000000', '2026-11-28 08:58:17.971693+00');
INSERT INTO public.resources VALUES ('vcpus', 'vCPU', 0, 0);
INSERT INTO public.resources VALUES ('memory_mib', 'MiB', 1, 0);
INSERT INTO public.resources VALUES ('disk_gib', 'GiB', 2, 0);
INSERT INTO public.schema_serves VALUES ('0066');
INSERT INTO public.slot_loop VALUES (1, 'running', NULL, NULL, NULL, NULL, NULL, 0);
SELECT pg_catalog.setval('public.audit_id_seq', 1, false);
SELECT pg_catalog.setval('public.events_id_seq', 1, false);
SELECT pg_catalog.setval('public.rounds_number_seq', 1, false);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.assignment_resources
    ADD CONSTRAINT pk_assignment_resources PRIMARY KEY (assignment_id, resource);
ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT pk_assignments PRIMARY KEY (id);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT pk_audit PRIMARY KEY (id);
ALTER TABLE ONLY public.build_failures
    ADD CONSTRAINT pk_build_failures PRIMARY KEY (request_id, host_id);
ALTER TABLE ONLY public.console_inputs
    ADD CONSTRAINT pk_console_inputs PRIMARY KEY (session_id, number);
ALTER TABLE ONLY public.console_outputs
    ADD CONSTRAINT pk_console_outputs PRIMARY KEY (session_id, start);
ALTER TABLE ONLY public.console_reads
    ADD CONSTRAINT pk_console_reads PRIMARY KEY (id);
ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT pk_console_sessions PRIMARY KEY (id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);
ALTER TABLE ONLY public.host_fences
    ADD CONSTRAINT pk_host_fences PRIMARY KEY (host_id);
ALTER TABLE ONLY public.host_reports
    ADD CONSTRAINT pk_host_reports PRIMARY KEY (host_id);
ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT pk_hosts PRIMARY KEY (id);
ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT pk_idempotency_keys PRIMARY KEY (scope, key);
ALTER TABLE ONLY public.image_copies
    ADD CONSTRAINT pk_image_copies PRIMARY KEY (id);
ALTER TABLE ONLY public.images
    ADD CONSTRAINT pk_images PRIMARY KEY (id);
ALTER TABLE ONLY public.installation_secrets
    ADD CONSTRAINT pk_installation_secrets PRIMARY KEY (name);
ALTER TABLE ONLY public.interfaces
    ADD CONSTRAINT pk_interfaces PRIMARY KEY (vm_id);
ALTER TABLE ONLY public.inventories
    ADD CONSTRAINT pk_inventories PRIMARY KEY (host_id, resource);
ALTER TABLE ONLY public.label_ratios
    ADD CONSTRAINT pk_label_ratios PRIMARY KEY (label, resource);
ALTER TABLE ONLY public.leases
    ADD CONSTRAINT pk_leases PRIMARY KEY (name);
ALTER TABLE ONLY public.leftovers
    ADD CONSTRAINT pk_leftovers PRIMARY KEY (id);
ALTER TABLE ONLY public.login_codes
    ADD CONSTRAINT pk_login_codes PRIMARY KEY (id);
ALTER TABLE ONLY public.monitors
    ADD CONSTRAINT pk_monitors PRIMARY KEY (id);
ALTER TABLE ONLY public.moves
    ADD CONSTRAINT pk_moves PRIMARY KEY (id);
ALTER TABLE ONLY public.network_addresses
    ADD CONSTRAINT pk_network_addresses PRIMARY KEY (network_id, address);
ALTER TABLE ONLY public.network_former_sources
    ADD CONSTRAINT pk_network_former_sources PRIMARY KEY (network_id, host_id, kind, source);
ALTER TABLE ONLY public.network_hosts
    ADD CONSTRAINT pk_network_hosts PRIMARY KEY (network_id, host_id);
ALTER TABLE ONLY public.network_offers
    ADD CONSTRAINT pk_network_offers PRIMARY KEY (network_id, tenant_id);
ALTER TABLE ONLY public.networks
    ADD CONSTRAINT pk_networks PRIMARY KEY (id);
ALTER TABLE ONLY public.plan_moves
    ADD CONSTRAINT pk_plan_moves PRIMARY KEY (plan_id, "position");
ALTER TABLE ONLY public.plans
    ADD CONSTRAINT pk_plans PRIMARY KEY (id);
ALTER TABLE ONLY public.power_actions
    ADD CONSTRAINT pk_power_actions PRIMARY KEY (vm_id);
ALTER TABLE ONLY public.preserved_disks
    ADD CONSTRAINT pk_preserved_disks PRIMARY KEY (vm_id);
ALTER TABLE ONLY public.processes
    ADD CONSTRAINT pk_processes PRIMARY KEY (kind, name);
ALTER TABLE ONLY public.quotas
    ADD CONSTRAINT pk_quotas PRIMARY KEY (tenant_id, resource);
ALTER TABLE ONLY public.request_access
    ADD CONSTRAINT pk_request_access PRIMARY KEY (request_id);
ALTER TABLE ONLY public.request_groups
    ADD CONSTRAINT pk_request_groups PRIMARY KEY (request_id, group_id);
ALTER TABLE ONLY public.request_images
    ADD CONSTRAINT pk_request_images PRIMARY KEY (request_id);
ALTER TABLE ONLY public.request_networks
    ADD CONSTRAINT pk_request_networks PRIMARY KEY (request_id);
ALTER TABLE ONLY public.requests
    ADD CONSTRAINT pk_requests PRIMARY KEY (id);
ALTER TABLE ONLY public.reservation_holds
    ADD CONSTRAINT pk_reservation_holds PRIMARY KEY (reservation_id, host_id);
ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT pk_reservations PRIMARY KEY (id);
ALTER TABLE ONLY public.resources
    ADD CONSTRAINT pk_resources PRIMARY KEY (name);
ALTER TABLE ONLY public.roll_hosts
    ADD CONSTRAINT pk_roll_hosts PRIMARY KEY (roll_id, "position");
ALTER TABLE ONLY public.rolls
    ADD CONSTRAINT pk_rolls PRIMARY KEY (id);
ALTER TABLE ONLY public.round_hash_chain
    ADD CONSTRAINT pk_round_hash_chain PRIMARY KEY (round);
ALTER TABLE ONLY public.round_inputs
    ADD CONSTRAINT pk_round_inputs PRIMARY KEY (round);
ALTER TABLE ONLY public.rounds
    ADD CONSTRAINT pk_rounds PRIMARY KEY (number);
ALTER TABLE ONLY public.schema_serves
    ADD CONSTRAINT pk_schema_serves PRIMARY KEY (code_since);
ALTER TABLE ONLY public.shadow_rounds
    ADD CONSTRAINT pk_shadow_rounds PRIMARY KEY (round);
ALTER TABLE ONLY public.slot_loop
    ADD CONSTRAINT pk_slot_loop PRIMARY KEY (id);
ALTER TABLE ONLY public.spot_preemptions
    ADD CONSTRAINT pk_spot_preemptions PRIMARY KEY (vm_id);
ALTER TABLE ONLY public.spot_room_holds
    ADD CONSTRAINT pk_spot_room_holds PRIMARY KEY (request_id, host_id);
ALTER TABLE ONLY public.ssh_keys
    ADD CONSTRAINT pk_ssh_keys PRIMARY KEY (id);
ALTER TABLE ONLY public.strangers
    ADD CONSTRAINT pk_strangers PRIMARY KEY (host_id, domain_uuid);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT pk_tenants PRIMARY KEY (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT pk_tokens PRIMARY KEY (id);
ALTER TABLE ONLY public.vm_groups
    ADD CONSTRAINT pk_vm_groups PRIMARY KEY (id);
ALTER TABLE ONLY public.vm_type_resources
    ADD CONSTRAINT pk_vm_type_resources PRIMARY KEY (vm_type_id, resource);
ALTER TABLE ONLY public.vm_types
    ADD CONSTRAINT pk_vm_types PRIMARY KEY (id);
ALTER TABLE ONLY public.vms
    ADD CONSTRAINT pk_vms PRIMARY KEY (id);
ALTER TABLE ONLY public.what_ifs
    ADD CONSTRAINT pk_what_ifs PRIMARY KEY (id);
ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT uq_assignments_id_host_id UNIQUE (id, host_id);
ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT uq_assignments_vm_id_generation UNIQUE (vm_id, generation);
ALTER TABLE ONLY public.image_copies
    ADD CONSTRAINT uq_image_copies_host_id_image_id UNIQUE (host_id, image_id);
ALTER TABLE ONLY public.images
    ADD CONSTRAINT uq_images_name_revision UNIQUE (name, revision);
ALTER TABLE ONLY public.interfaces
    ADD CONSTRAINT uq_interfaces_mac UNIQUE (mac);
ALTER TABLE ONLY public.leftovers
    ADD CONSTRAINT uq_leftovers_host_id_kind_name UNIQUE (host_id, kind, name);
ALTER TABLE ONLY public.login_codes
    ADD CONSTRAINT uq_login_codes_digest UNIQUE (digest);
ALTER TABLE ONLY public.network_addresses
    ADD CONSTRAINT uq_network_addresses_vm_id UNIQUE (vm_id);
ALTER TABLE ONLY public.networks
    ADD CONSTRAINT uq_networks_name UNIQUE (name);
ALTER TABLE ONLY public.resources
    ADD CONSTRAINT uq_resources_position UNIQUE ("position");
ALTER TABLE ONLY public.ssh_keys
    ADD CONSTRAINT uq_ssh_keys_tenant_id_name UNIQUE (tenant_id, name);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT uq_tenants_name UNIQUE (name);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT uq_tokens_digest UNIQUE (digest);
ALTER TABLE ONLY public.vm_groups
    ADD CONSTRAINT uq_vm_groups_tenant_id_name UNIQUE (tenant_id, name);
ALTER TABLE ONLY public.vm_types
    ADD CONSTRAINT uq_vm_types_name_revision UNIQUE (name, revision);
CREATE INDEX ix_assignment_resources_host_id_resource ON public.assignment_resources USING btree (host_id, resource);
CREATE INDEX ix_assignments_disk_of ON public.assignments USING btree (disk_of) WHERE (disk_of IS NOT NULL);
CREATE INDEX ix_assignments_host_id_unreleased ON public.assignments USING btree (host_id) WHERE ((state)::text <> 'released'::text);
CREATE INDEX ix_assignments_lease_until ON public.assignments USING btree (lease_until) WHERE (lease_until IS NOT NULL);
CREATE INDEX ix_assignments_round ON public.assignments USING btree (round);
CREATE INDEX ix_assignments_state_unreleased ON public.assignments USING btree (state) WHERE ((state)::text <> 'released'::text);
CREATE INDEX ix_audit_at ON public.audit USING btree (at);
CREATE INDEX ix_audit_subject_id ON public.audit USING btree (subject, id);
CREATE INDEX ix_audit_tenant_id ON public.audit USING btree (tenant, id);
CREATE INDEX ix_audit_token_id ON public.audit USING btree (token, id);
CREATE INDEX ix_console_reads_requested_at ON public.console_reads USING btree (requested_at);
CREATE INDEX ix_console_sessions_heartbeat_at ON public.console_sessions USING btree (heartbeat_at);
CREATE INDEX ix_events_kind_id ON public.events USING btree (kind, id);
CREATE INDEX ix_events_subject_id_id ON public.events USING btree (subject_id, id);
CREATE INDEX ix_events_tenant_id ON public.events USING btree (tenant, id);
CREATE INDEX ix_hosts_machine_uuid ON public.hosts USING btree (machine_uuid) WHERE (machine_uuid IS NOT NULL);
CREATE INDEX ix_hosts_missed ON public.hosts USING btree (id) WHERE (missed_polls > 0);
CREATE INDEX ix_hosts_shared_pool ON public.hosts USING btree (shared_pool) WHERE (shared_pool IS NOT NULL);
CREATE INDEX ix_idempotency_keys_first_used_at ON public.idempotency_keys USING btree (first_used_at);
CREATE INDEX ix_image_copies_image_id ON public.image_copies USING btree (image_id);
CREATE INDEX ix_image_copies_state ON public.image_copies USING btree (state);
CREATE INDEX ix_images_state ON public.images USING btree (state);
CREATE INDEX ix_interfaces_network_id ON public.interfaces USING btree (network_id);
CREATE INDEX ix_login_codes_expires_at ON public.login_codes USING btree (expires_at);
CREATE INDEX ix_login_codes_token_id ON public.login_codes USING btree (token_id);
CREATE INDEX ix_moves_from_host_id_id ON public.moves USING btree (from_host_id, id);
CREATE INDEX ix_moves_state_open ON public.moves USING btree (state) WHERE ((state)::text = ANY ((ARRAY['pending'::character varying, 'moving'::character varying])::text[]));
CREATE INDEX ix_moves_to_host_id_id ON public.moves USING btree (to_host_id, id);
CREATE INDEX ix_moves_vm_id_id ON public.moves USING btree (vm_id, id);
CREATE INDEX ix_network_offers_tenant_id ON public.network_offers USING btree (tenant_id);
CREATE INDEX ix_plan_moves_move_id ON public.plan_moves USING btree (move_id);
CREATE INDEX ix_plans_requested_by_id ON public.plans USING btree (requested_by, id);
CREATE INDEX ix_plans_state_open ON public.plans USING btree (state) WHERE ((state)::text = ANY ((ARRAY['pending'::character varying, 'approved'::character varying])::text[]));
CREATE INDEX ix_preserved_disks_disk_of ON public.preserved_disks USING btree (disk_of);
CREATE INDEX ix_request_groups_group_id ON public.request_groups USING btree (group_id);
CREATE INDEX ix_request_images_image_id ON public.request_images USING btree (image_id);
CREATE INDEX ix_request_networks_network_id ON public.request_networks USING btree (network_id);
CREATE INDEX ix_requests_expires_at ON public.requests USING btree (expires_at);
CREATE INDEX ix_requests_name ON public.requests USING btree (name);
CREATE INDEX ix_requests_reservation_id ON public.requests USING btree (reservation_id) WHERE (reservation_id IS NOT NULL);
CREATE INDEX ix_requests_state ON public.requests USING btree (state);
CREATE INDEX ix_requests_state_id ON public.requests USING btree (state, id);
CREATE INDEX ix_requests_tenant_id_id ON public.requests USING btree (tenant_id, id);
CREATE INDEX ix_reservations_open ON public.reservations USING btree (state) WHERE ((state)::text = ANY ((ARRAY['pending'::character varying, 'accepted'::character varying, 'in_force'::character varying])::text[]));
CREATE INDEX ix_reservations_tenant_id_id ON public.reservations USING btree (tenant_id, id);
CREATE INDEX ix_roll_hosts_host_id ON public.roll_hosts USING btree (host_id);
CREATE INDEX ix_tokens_parent_id ON public.tokens USING btree (parent_id);
CREATE INDEX ix_vms_deleted_at ON public.vms USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);
CREATE INDEX ix_vms_id_live ON public.vms USING btree (id) WHERE (deleted_at IS NULL);
CREATE INDEX ix_vms_id_spot ON public.vms USING btree (id) WHERE (spot AND (deleted_at IS NULL));
CREATE INDEX ix_vms_name ON public.vms USING btree (name);
CREATE INDEX ix_vms_request_id_id ON public.vms USING btree (request_id, id);
CREATE INDEX ix_vms_request_id_unplaced ON public.vms USING btree (request_id, id) WHERE (((observed)::text = 'absent'::text) AND ((desired)::text <> 'deleted'::text));
CREATE INDEX ix_vms_tenant_id_id ON public.vms USING btree (tenant_id, id);
CREATE INDEX ix_vms_tenant_id_live ON public.vms USING btree (tenant_id, id) WHERE (deleted_at IS NULL);
CREATE UNIQUE INDEX uq_assignments_vm_id_arriving ON public.assignments USING btree (vm_id) WHERE ((state)::text = 'arriving'::text);
CREATE UNIQUE INDEX uq_assignments_vm_id_leaving ON public.assignments USING btree (vm_id) WHERE ((state)::text = 'leaving'::text);
CREATE UNIQUE INDEX uq_assignments_vm_id_place ON public.assignments USING btree (vm_id) WHERE ((state)::text <> ALL ((ARRAY['released'::character varying, 'arriving'::character varying, 'leaving'::character varying])::text[]));
CREATE UNIQUE INDEX uq_console_sessions_vm_id ON public.console_sessions USING btree (vm_id) WHERE ((state)::text <> 'ended'::text);
CREATE UNIQUE INDEX uq_hosts_name ON public.hosts USING btree (name) WHERE ((admin)::text <> 'retired'::text);
CREATE UNIQUE INDEX uq_hosts_uri ON public.hosts USING btree (uri) WHERE ((admin)::text <> 'retired'::text);
CREATE UNIQUE INDEX uq_requests_tenant_id_name ON public.requests USING btree (tenant_id, name) WHERE ((state)::text <> ALL ((ARRAY['released'::character varying, 'cancelled'::character varying, 'expired'::character varying])::text[]));
CREATE UNIQUE INDEX uq_reservations_tenant_id_name ON public.reservations USING btree (tenant_id, name) WHERE ((state)::text = ANY ((ARRAY['pending'::character varying, 'accepted'::character varying, 'in_force'::character varying])::text[]));
CREATE UNIQUE INDEX uq_tokens_name ON public.tokens USING btree (name) WHERE (revoked_at IS NULL);
CREATE UNIQUE INDEX uq_vms_tenant_id_name ON public.vms USING btree (tenant_id, name) WHERE ((desired)::text <> 'deleted'::text);
CREATE TRIGGER events_hold_readers_back BEFORE INSERT ON public.events FOR EACH STATEMENT EXECUTE FUNCTION public.events_hold_readers_back();
CREATE TRIGGER ledger_amounts_are_immutable BEFORE UPDATE ON public.assignment_resources FOR EACH ROW EXECUTE FUNCTION public.ledger_refuse('an assignment''s amounts are immutable');
CREATE TRIGGER ledger_amounts_are_kept AFTER DELETE ON public.assignment_resources REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_amounts_are_kept();
CREATE TRIGGER ledger_amounts_are_not_emptied BEFORE TRUNCATE ON public.assignment_resources FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_refuse('amounts are not emptied');
CREATE TRIGGER ledger_assignment_is_immutable BEFORE UPDATE ON public.assignments FOR EACH ROW WHEN (((new.id <> old.id) OR (new.vm_id <> old.vm_id) OR (new.host_id <> old.host_id) OR (new.tenant_id <> old.tenant_id) OR (new.round <> old.round) OR (new.generation <> old.generation))) EXECUTE FUNCTION public.ledger_refuse('an assignment keeps its VM, host, round and generation');
CREATE TRIGGER ledger_assignment_is_kept BEFORE DELETE ON public.assignments FOR EACH ROW WHEN (((old.state)::text <> 'released'::text)) EXECUTE FUNCTION public.ledger_refuse('an unreleased assignment stays');
CREATE TRIGGER ledger_assignment_outlives_amounts AFTER DELETE ON public.assignments REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_assignment_outlives_amounts();
CREATE TRIGGER ledger_assignments_are_not_emptied BEFORE TRUNCATE ON public.assignments FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_refuse('assignments are not emptied');
CREATE TRIGGER ledger_commit AFTER INSERT ON public.assignment_resources REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_commit();
CREATE TRIGGER ledger_committed_is_the_sum AFTER UPDATE ON public.inventories REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT WHEN ((pg_trigger_depth() = 0)) EXECUTE FUNCTION public.ledger_committed_is_the_sum();
CREATE TRIGGER ledger_committed_starts_as_the_sum BEFORE INSERT ON public.inventories FOR EACH ROW WHEN ((new.committed <> 0)) EXECUTE FUNCTION public.ledger_refuse('committed is the sum over unreleased assignments');
CREATE TRIGGER ledger_inventories_are_not_emptied BEFORE TRUNCATE ON public.inventories FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_refuse('inventories are not emptied');
CREATE TRIGGER ledger_inventory_is_kept BEFORE DELETE ON public.inventories FOR EACH ROW WHEN ((old.committed <> 0)) EXECUTE FUNCTION public.ledger_refuse('an inventory with committed capacity stays');
CREATE TRIGGER ledger_inventory_outlives_amounts AFTER DELETE ON public.inventories REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_inventory_outlives_amounts();
CREATE TRIGGER ledger_inventory_stays BEFORE UPDATE ON public.inventories FOR EACH ROW WHEN (((new.host_id <> old.host_id) OR ((new.resource)::text <> (old.resource)::text))) EXECUTE FUNCTION public.ledger_refuse('an inventory keeps its host and resource');
CREATE TRIGGER ledger_release AFTER UPDATE ON public.assignments REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_release();
CREATE TRIGGER ledger_released_is_final BEFORE UPDATE ON public.assignments FOR EACH ROW WHEN ((((old.state)::text = 'released'::text) AND ((new.state)::text <> 'released'::text))) EXECUTE FUNCTION public.ledger_refuse('released is final');
CREATE TRIGGER version_by_assignment AFTER INSERT ON public.assignments REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION public.version_by_assignment();
CREATE TRIGGER version_by_capacity AFTER UPDATE ON public.inventories REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION public.version_by_capacity();
CREATE TRIGGER version_by_host BEFORE UPDATE ON public.hosts FOR EACH ROW WHEN ((((new.admin)::text <> (old.admin)::text) OR (new.labels <> old.labels) OR (((old.health)::text = 'up'::text) AND ((new.health)::text <> 'up'::text)))) EXECUTE FUNCTION public.version_by_host();
CREATE TRIGGER version_only_rises BEFORE UPDATE ON public.hosts FOR EACH ROW WHEN ((new.version < old.version)) EXECUTE FUNCTION public.ledger_refuse('the version of a host only rises');
CREATE TRIGGER vm_type_is_immutable BEFORE UPDATE ON public.vm_type_resources FOR EACH ROW EXECUTE FUNCTION public.ledger_refuse('a VM type is immutable; an edit makes a revision');
ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT fk_assignments_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT fk_assignments_round_rounds FOREIGN KEY (round) REFERENCES public.rounds(number);
ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT fk_assignments_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT fk_assignments_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.build_failures
    ADD CONSTRAINT fk_build_failures_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.build_failures
    ADD CONSTRAINT fk_build_failures_request_id_requests FOREIGN KEY (request_id) REFERENCES public.requests(id);
ALTER TABLE ONLY public.console_inputs
    ADD CONSTRAINT fk_console_inputs_session_id_console_sessions FOREIGN KEY (session_id) REFERENCES public.console_sessions(id);
ALTER TABLE ONLY public.console_outputs
    ADD CONSTRAINT fk_console_outputs_session_id_console_sessions FOREIGN KEY (session_id) REFERENCES public.console_sessions(id);
ALTER TABLE ONLY public.console_reads
    ADD CONSTRAINT fk_console_reads_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT fk_console_sessions_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.host_fences
    ADD CONSTRAINT fk_host_fences_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.host_reports
    ADD CONSTRAINT fk_host_reports_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT fk_idempotency_keys_request_id_requests FOREIGN KEY (request_id) REFERENCES public.requests(id);
ALTER TABLE ONLY public.image_copies
    ADD CONSTRAINT fk_image_copies_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.image_copies
    ADD CONSTRAINT fk_image_copies_image_id_images FOREIGN KEY (image_id) REFERENCES public.images(id);
ALTER TABLE ONLY public.interfaces
    ADD CONSTRAINT fk_interfaces_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id);
ALTER TABLE ONLY public.interfaces
    ADD CONSTRAINT fk_interfaces_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.inventories
    ADD CONSTRAINT fk_inventories_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.inventories
    ADD CONSTRAINT fk_inventories_resource_resources FOREIGN KEY (resource) REFERENCES public.resources(name);
ALTER TABLE ONLY public.label_ratios
    ADD CONSTRAINT fk_label_ratios_resource_resources FOREIGN KEY (resource) REFERENCES public.resources(name);
ALTER TABLE ONLY public.leftovers
    ADD CONSTRAINT fk_leftovers_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.login_codes
    ADD CONSTRAINT fk_login_codes_token_id_tokens FOREIGN KEY (token_id) REFERENCES public.tokens(id);
ALTER TABLE ONLY public.moves
    ADD CONSTRAINT fk_moves_from_host_id_hosts FOREIGN KEY (from_host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.moves
    ADD CONSTRAINT fk_moves_to_host_id_hosts FOREIGN KEY (to_host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.moves
    ADD CONSTRAINT fk_moves_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.network_addresses
    ADD CONSTRAINT fk_network_addresses_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id);
ALTER TABLE ONLY public.network_addresses
    ADD CONSTRAINT fk_network_addresses_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.network_former_sources
    ADD CONSTRAINT fk_network_former_sources_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.network_former_sources
    ADD CONSTRAINT fk_network_former_sources_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.network_hosts
    ADD CONSTRAINT fk_network_hosts_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.network_hosts
    ADD CONSTRAINT fk_network_hosts_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id);
ALTER TABLE ONLY public.network_offers
    ADD CONSTRAINT fk_network_offers_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id);
ALTER TABLE ONLY public.network_offers
    ADD CONSTRAINT fk_network_offers_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.plan_moves
    ADD CONSTRAINT fk_plan_moves_from_host_id_hosts FOREIGN KEY (from_host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.plan_moves
    ADD CONSTRAINT fk_plan_moves_move_id_moves FOREIGN KEY (move_id) REFERENCES public.moves(id);
ALTER TABLE ONLY public.plan_moves
    ADD CONSTRAINT fk_plan_moves_plan_id_plans FOREIGN KEY (plan_id) REFERENCES public.plans(id);
ALTER TABLE ONLY public.plan_moves
    ADD CONSTRAINT fk_plan_moves_to_host_id_hosts FOREIGN KEY (to_host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.plan_moves
    ADD CONSTRAINT fk_plan_moves_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.power_actions
    ADD CONSTRAINT fk_power_actions_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.preserved_disks
    ADD CONSTRAINT fk_preserved_disks_vm_id_vms FOREIGN KEY (vm_id) REFERENCES public.vms(id);
ALTER TABLE ONLY public.quotas
    ADD CONSTRAINT fk_quotas_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.request_access
    ADD CONSTRAINT fk_request_access_request_id_requests FOREIGN KEY (request_id) REFERENCES public.requests(id);
ALTER TABLE ONLY public.request_groups
    ADD CONSTRAINT fk_request_groups_group_id_vm_groups FOREIGN KEY (group_id) REFERENCES public.vm_groups(id);
ALTER TABLE ONLY public.request_groups
    ADD CONSTRAINT fk_request_groups_request_id_requests FOREIGN KEY (request_id) REFERENCES public.requests(id);
ALTER TABLE ONLY public.request_images
    ADD CONSTRAINT fk_request_images_image_id_images FOREIGN KEY (image_id) REFERENCES public.images(id);
ALTER TABLE ONLY public.request_images
    ADD CONSTRAINT fk_request_images_request_id_requests FOREIGN KEY (request_id) REFERENCES public.requests(id);
ALTER TABLE ONLY public.request_networks
    ADD CONSTRAINT fk_request_networks_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id);
ALTER TABLE ONLY public.request_networks
    ADD CONSTRAINT fk_request_networks_request_id_requests FOREIGN KEY (request_id) REFERENCES public.requests(id);
ALTER TABLE ONLY public.requests
    ADD CONSTRAINT fk_requests_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.requests
    ADD CONSTRAINT fk_requests_vm_type_id_vm_types FOREIGN KEY (vm_type_id) REFERENCES public.vm_types(id);
ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT fk_reservations_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT fk_reservations_vm_type_id_vm_types FOREIGN KEY (vm_type_id) REFERENCES public.vm_types(id);
ALTER TABLE ONLY public.roll_hosts
    ADD CONSTRAINT fk_roll_hosts_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.roll_hosts
    ADD CONSTRAINT fk_roll_hosts_roll_id_rolls FOREIGN KEY (roll_id) REFERENCES public.rolls(id);
ALTER TABLE ONLY public.round_inputs
    ADD CONSTRAINT fk_round_inputs_round_rounds FOREIGN KEY (round) REFERENCES public.rounds(number);
ALTER TABLE ONLY public.shadow_rounds
    ADD CONSTRAINT fk_shadow_rounds_round_rounds FOREIGN KEY (round) REFERENCES public.rounds(number);
ALTER TABLE ONLY public.ssh_keys
    ADD CONSTRAINT fk_ssh_keys_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.strangers
    ADD CONSTRAINT fk_strangers_host_id_hosts FOREIGN KEY (host_id) REFERENCES public.hosts(id);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT fk_tenants_parent_id_tenants FOREIGN KEY (parent_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT fk_tokens_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.vm_groups
    ADD CONSTRAINT fk_vm_groups_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
ALTER TABLE ONLY public.vm_type_resources
    ADD CONSTRAINT fk_vm_type_resources_resource_resources FOREIGN KEY (resource) REFERENCES public.resources(name);
ALTER TABLE ONLY public.vm_type_resources
    ADD CONSTRAINT fk_vm_type_resources_vm_type_id_vm_types FOREIGN KEY (vm_type_id) REFERENCES public.vm_types(id);
ALTER TABLE ONLY public.vms
    ADD CONSTRAINT fk_vms_request_id_requests FOREIGN KEY (request_id) REFERENCES public.requests(id);
ALTER TABLE ONLY public.vms
    ADD CONSTRAINT fk_vms_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);
