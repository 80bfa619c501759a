"""Tables of PostgreSQL with the responses and conversations of several gateways.

An entry is a response that has ended, or a conversation. Its items go with it. A trigger counts the entries of each
owner, because to count them for each change would take long if there are many. Whatever changes the number or the sizes
of entries holds one lock, so that the limits hold for all gateways together. Ids are bytes, because clients choose
those of items, and a text of PostgreSQL takes no zero.

Transactions lock in one order, so that none waits for another in a circle: the store, a conversation, a gateway. What
only marks an entry as used never waits.
"""

SCHEMA = (
    "CREATE SEQUENCE IF NOT EXISTS stored_uses",
    """CREATE TABLE IF NOT EXISTS stored_entries (
        id BYTEA PRIMARY KEY,
        owner TEXT NOT NULL,
        bytes BIGINT NOT NULL,
        used BIGINT NOT NULL DEFAULT nextval('stored_uses')
    )""",
    "CREATE INDEX IF NOT EXISTS stored_entries_by_use ON stored_entries (owner, used)",
    """CREATE TABLE IF NOT EXISTS stored_owners (
        owner TEXT PRIMARY KEY,
        entries BIGINT NOT NULL,
        bytes BIGINT NOT NULL
    )""",
    """CREATE OR REPLACE FUNCTION stored_count() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP <> 'INSERT' THEN
            UPDATE stored_owners SET entries = entries - 1, bytes = bytes - OLD.bytes WHERE owner = OLD.owner;
        END IF;
        IF TG_OP <> 'DELETE' THEN
            INSERT INTO stored_owners AS o VALUES (NEW.owner, 1, NEW.bytes)
                ON CONFLICT (owner) DO UPDATE SET entries = o.entries + 1, bytes = o.bytes + NEW.bytes;
        ELSE
            DELETE FROM stored_owners WHERE owner = OLD.owner AND entries = 0;
        END IF;
        RETURN NULL;
    END $$""",
    """CREATE OR REPLACE TRIGGER stored_count AFTER INSERT OR DELETE OR UPDATE OF bytes ON stored_entries
        FOR EACH ROW EXECUTE FUNCTION stored_count()""",
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
    """CREATE INDEX IF NOT EXISTS stored_conversations_by_gateway ON stored_conversations (turn_gateway)
        WHERE turn_gateway IS NOT NULL""",
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
