"""Parts of states, each once under the digest of its text, compressed; and what keeps them as they are.

A part goes only when the entry that it was first written with has been exported. There is no way back.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SQLITE = (
    """CREATE TRIGGER trimtab_parts_stay BEFORE UPDATE ON trimtab_parts
    BEGIN SELECT RAISE(ABORT, 'parts are never changed'); END""",
    """CREATE TRIGGER trimtab_parts_leave BEFORE DELETE ON trimtab_parts
    WHEN NOT EXISTS (
        SELECT 1 FROM trimtab_exports WHERE OLD.number BETWEEN first_number AND last_number)
    BEGIN SELECT RAISE(ABORT, 'only parts of exported entries are deleted'); END""",
)

_POSTGRESQL = (
    """CREATE FUNCTION trimtab_guard_parts() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF EXISTS (SELECT 1 FROM trimtab_exports
                WHERE OLD.number BETWEEN first_number AND last_number) THEN
                RETURN OLD;
            END IF;
            RAISE EXCEPTION 'only parts of exported entries are deleted';
        END IF;
        RAISE EXCEPTION '% is never changed', TG_TABLE_NAME;
    END $$""",
    """CREATE TRIGGER trimtab_parts_guard BEFORE UPDATE OR DELETE ON trimtab_parts
    FOR EACH ROW EXECUTE FUNCTION trimtab_guard_parts()""",
    """CREATE TRIGGER trimtab_parts_whole BEFORE TRUNCATE ON trimtab_parts
    FOR EACH STATEMENT EXECUTE FUNCTION trimtab_guard_parts()""",
)


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "trimtab_parts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)
