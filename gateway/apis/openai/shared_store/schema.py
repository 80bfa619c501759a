"""Tables of PostgreSQL with the responses and conversations of several gateways.

An entry is a response that has ended, or a conversation. Its items go with it. Whatever changes the number or the sizes
of entries holds one lock, so that the limits hold for all gateways together. Ids are bytes, because clients choose
those of items, and a text of PostgreSQL takes no zero.
"""

SCHEMA = (
    "CREATE SEQUENCE IF NOT EXISTS stored_uses",
    """CREATE TABLE IF NOT EXISTS stored_entries (
        id BYTEA PRIMARY KEY,
        owner TEXT NOT NULL,
        bytes BIGINT NOT NULL,
        used BIGINT NOT NULL DEFAULT nextval('stored_uses')
    )""",
    "CREATE INDEX IF NOT EXISTS stored_entries_by_use ON stored_entries (owner, used) INCLUDE (bytes)",
    """CREATE TABLE IF NOT EXISTS stored_responses (
        id BYTEA PRIMARY KEY REFERENCES stored_entries ON DELETE CASCADE,
        head BYTEA NOT NULL,
        echo BYTEA NOT NULL,
        inputs BIGINT NOT NULL,
        previous_id BYTEA,
        can_continue BOOLEAN NOT NULL,
        background BOOLEAN NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS stored_conversations (
        id BYTEA PRIMARY KEY REFERENCES stored_entries ON DELETE CASCADE,
        head BYTEA NOT NULL,
        turn TEXT,
        turn_gateway TEXT
    )""",
    """CREATE TABLE IF NOT EXISTS stored_items (
        entry BYTEA REFERENCES stored_entries ON DELETE CASCADE,
        number BIGINT,
        owner TEXT NOT NULL,
        id BYTEA NOT NULL,
        json BYTEA NOT NULL,
        refers BOOLEAN NOT NULL,
        PRIMARY KEY (entry, number)
    )""",
    "CREATE INDEX IF NOT EXISTS stored_items_by_id ON stored_items (owner, id) WHERE refers",
    """CREATE TABLE IF NOT EXISTS stored_running (
        id BYTEA PRIMARY KEY,
        owner TEXT NOT NULL,
        gateway TEXT NOT NULL,
        response BYTEA NOT NULL,
        cancelled BOOLEAN NOT NULL DEFAULT FALSE
    )""",
    "CREATE TABLE IF NOT EXISTS stored_gateways (id TEXT PRIMARY KEY, expires_at TIMESTAMPTZ NOT NULL)",
)
LOCK = 0x73746F726564
"""Key of the lock for changes of the number and the sizes of entries."""
