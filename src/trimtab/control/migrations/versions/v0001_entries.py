"""Entries and exports, and the triggers that keep both as they were written. There is no way back.

`trimtab_entries` holds what happened. Its numbers follow each other without a gap over both tables: a run of
numbers that was exported stands in `trimtab_exports`, and only such entries may be deleted.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SQLITE = (
    """CREATE TRIGGER trimtab_entries_follow BEFORE INSERT ON trimtab_entries
    WHEN NEW.number IS NOT 1 + max(
        (SELECT coalesce(max(number), 0) FROM trimtab_entries),
        (SELECT coalesce(max(last_number), 0) FROM trimtab_exports))
    BEGIN SELECT RAISE(ABORT, 'entries are numbered without a gap'); END""",
    """CREATE TRIGGER trimtab_entries_stay BEFORE UPDATE ON trimtab_entries
    BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END""",
    """CREATE TRIGGER trimtab_entries_leave BEFORE DELETE ON trimtab_entries
    WHEN NOT EXISTS (
        SELECT 1 FROM trimtab_exports WHERE OLD.number BETWEEN first_number AND last_number)
    BEGIN SELECT RAISE(ABORT, 'only exported entries are deleted'); END""",
    """CREATE TRIGGER trimtab_exports_follow BEFORE INSERT ON trimtab_exports
    WHEN EXISTS (SELECT 1 FROM trimtab_exports
        WHERE NEW.first_number <= last_number AND NEW.last_number >= first_number)
    BEGIN SELECT RAISE(ABORT, 'entries are exported once'); END""",
    """CREATE TRIGGER trimtab_exports_stay BEFORE UPDATE ON trimtab_exports
    BEGIN SELECT RAISE(ABORT, 'exports are never changed'); END""",
    """CREATE TRIGGER trimtab_exports_remain BEFORE DELETE ON trimtab_exports
    BEGIN SELECT RAISE(ABORT, 'exports are never deleted'); END""",
)

_POSTGRESQL = (
    """CREATE FUNCTION trimtab_guard() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' AND TG_TABLE_NAME = 'trimtab_entries' THEN
            IF NEW.number <> 1 + greatest(
                (SELECT coalesce(max(number), 0) FROM trimtab_entries),
                (SELECT coalesce(max(last_number), 0) FROM trimtab_exports)) THEN
                RAISE EXCEPTION 'entries are numbered without a gap';
            END IF;
            RETURN NEW;
        END IF;
        IF TG_OP = 'INSERT' THEN
            IF EXISTS (SELECT 1 FROM trimtab_exports
                WHERE NEW.first_number <= last_number AND NEW.last_number >= first_number) THEN
                RAISE EXCEPTION 'entries are exported once';
            END IF;
            RETURN NEW;
        END IF;
        IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'trimtab_entries' THEN
            IF EXISTS (SELECT 1 FROM trimtab_exports
                WHERE OLD.number BETWEEN first_number AND last_number) THEN
                RETURN OLD;
            END IF;
            RAISE EXCEPTION 'only exported entries are deleted';
        END IF;
        RAISE EXCEPTION '% is never changed', TG_TABLE_NAME;
    END $$""",
    """CREATE TRIGGER trimtab_entries_guard BEFORE INSERT OR UPDATE OR DELETE ON trimtab_entries
    FOR EACH ROW EXECUTE FUNCTION trimtab_guard()""",
    """CREATE TRIGGER trimtab_exports_guard BEFORE INSERT OR UPDATE OR DELETE ON trimtab_exports
    FOR EACH ROW EXECUTE FUNCTION trimtab_guard()""",
    """CREATE TRIGGER trimtab_entries_whole BEFORE TRUNCATE ON trimtab_entries
    FOR EACH STATEMENT EXECUTE FUNCTION trimtab_guard()""",
    """CREATE TRIGGER trimtab_exports_whole BEFORE TRUNCATE ON trimtab_exports
    FOR EACH STATEMENT EXECUTE FUNCTION trimtab_guard()""",
)


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "trimtab_entries",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("wall_ms", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("outcome", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("versions", sa.Text, nullable=False),
    )
    op.create_table(
        "trimtab_exports",
        sa.Column("first_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_number", sa.BigInteger, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.CheckConstraint("first_number <= last_number", name="trimtab_exports_order"),
    )
    op.create_index("trimtab_entries_kind", "trimtab_entries", ["kind", "number"])
    op.create_index("trimtab_entries_outcome", "trimtab_entries", ["outcome", "number"])
    op.create_index("trimtab_entries_key", "trimtab_entries", ["key", "number"])
    only = sa.text("kind = 'intent'")
    op.create_index(
        "trimtab_entries_intent",
        "trimtab_entries",
        ["key"],
        unique=True,
        sqlite_where=only,
        postgresql_where=only,
    )
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)
