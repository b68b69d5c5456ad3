-- The role of fuga's processes: it reads and writes rows, and can change no table, trigger or function.
-- A superuser runs this in each of fuga's databases, before or after `fuga db upgrade`; again does no harm:
--   psql --single-transaction -v ON_ERROR_STOP=1 -d fuga -f run-role.sql
-- The database's owner keeps what `fuga db upgrade` and `fuga db restore` need.
DO $run_role$
DECLARE
    owner name := (SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database());
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fuga_run') THEN
        CREATE ROLE fuga_run LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
    END IF;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM fuga_run', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO fuga_run', current_database());
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA public TO %I', owner);
    REVOKE ALL ON SCHEMA public FROM fuga_run;
    GRANT USAGE ON SCHEMA public TO fuga_run;

    REVOKE ALL ON ALL TABLES IN SCHEMA public FROM fuga_run;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO fuga_run;
    REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM fuga_run;
    GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO fuga_run;
    -- Which revision the tables have is the owner's to say. (Of a database that has no tables yet,
    -- run this once more after the first upgrade, or leave that one right.)
    IF to_regclass('public.alembic_version') IS NOT NULL THEN
        REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM fuga_run;
    END IF;
    IF to_regclass('public.schema_serves') IS NOT NULL THEN
        REVOKE INSERT, UPDATE, DELETE ON schema_serves FROM fuga_run;
    END IF;

    -- Tables of later revisions.
    EXECUTE format(
        'ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA public'
        ' GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO fuga_run', owner);
    EXECUTE format(
        'ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA public'
        ' GRANT USAGE, SELECT ON SEQUENCES TO fuga_run', owner);
END
$run_role$;
