"""Tables and functions of PostgreSQL by which gateways share the ledgers of keys.

Each function locks the ledger of one key and is one step for all gateways. Times are in microseconds since 1970 by the
database's clock, so that the clocks of the gateways do not matter; a test sets `p_time`. A level counts in units of
1 / 60,000,000 token or request, so that a limit per minute drains by whole units in a microsecond. The arithmetic is
that of `Bucket`, `Budget` and `KeyLedger`, which pass the same tests.

A reservation is a row until its request ends. The sums over the open rows are the requests at once and the reserved
tokens of a key: nothing else counts them that could differ. A row whose lease has passed is one of a gateway that died
or was cut off. Its request no longer counts among those at once, and its tokens are charged as reserved, because no
other number is known and the request cannot have computed more. If its gateway settles it after all, the real charge
takes the place of that one.

Rows of ended requests say what was charged, and are kept for a while. A request that runs again on another gateway is
admitted with the same id: that gateway takes the row over, open or ended, and the first one cannot change it any more.
"""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS limit_ledgers (
        key_id TEXT PRIMARY KEY,
        requests_level NUMERIC NOT NULL DEFAULT 0,
        requests_at BIGINT NOT NULL DEFAULT 0,
        tokens_level NUMERIC NOT NULL DEFAULT 0,
        tokens_at BIGINT NOT NULL DEFAULT 0,
        day BIGINT NOT NULL DEFAULT 0,
        day_tokens BIGINT NOT NULL DEFAULT 0,
        month BIGINT NOT NULL DEFAULT 0,
        month_tokens BIGINT NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE IF NOT EXISTS limit_reservations (
        id TEXT PRIMARY KEY,
        key_id TEXT NOT NULL,
        gateway TEXT NOT NULL,
        taken BIGINT,
        taken_at BIGINT NOT NULL,
        day_tokens BIGINT NOT NULL,
        month_tokens BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        ended_at BIGINT,
        keep_until BIGINT
    )""",
    "CREATE INDEX IF NOT EXISTS open_limits_by_key ON limit_reservations (key_id) WHERE ended_at IS NULL",
    "CREATE INDEX IF NOT EXISTS open_limits_by_gateway ON limit_reservations (gateway) WHERE ended_at IS NULL",
    "CREATE INDEX IF NOT EXISTS ended_limits ON limit_reservations (key_id, keep_until) WHERE ended_at IS NOT NULL",
    """CREATE OR REPLACE FUNCTION limits_time(p_time BIGINT) RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
        SELECT COALESCE(p_time, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT)
    $$""",
    """CREATE OR REPLACE FUNCTION limits_month(p_time BIGINT, p_months INTEGER) RETURNS BIGINT LANGUAGE sql AS $$
        SELECT (extract(epoch FROM date_trunc('month', to_timestamp(p_time / 1000000) AT TIME ZONE 'UTC')
            + make_interval(months => p_months)) * 1000000)::BIGINT
    $$""",
    # Lock a ledger, begin new periods, and expire leases. Expired rows are kept for a day, for gateways that return.
    # Settled ones are kept for a minute, for requests that run again because their responses were lost. A clock that
    # was set back must not stop the rates until it has caught up.
    """CREATE OR REPLACE FUNCTION limits_lock(p_key TEXT, p_time BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
    DECLARE
        t BIGINT;
        d BIGINT;
    BEGIN
        PERFORM 1 FROM limit_ledgers WHERE key_id = p_key FOR UPDATE;
        IF NOT FOUND THEN
            INSERT INTO limit_ledgers (key_id) VALUES (p_key) ON CONFLICT DO NOTHING;
            PERFORM 1 FROM limit_ledgers WHERE key_id = p_key FOR UPDATE;
        END IF;
        t := limits_time(p_time);
        d := t - mod(t, 86400000000);
        UPDATE limit_ledgers SET day = d, day_tokens = 0
            WHERE key_id = p_key AND day NOT BETWEEN d AND d + 86400000000;
        UPDATE limit_ledgers SET month = limits_month(t, 0), month_tokens = 0
            WHERE key_id = p_key AND month NOT BETWEEN limits_month(t, 0) AND limits_month(t, 1);
        UPDATE limit_ledgers SET requests_at = least(requests_at, t), tokens_at = least(tokens_at, t)
            WHERE key_id = p_key AND greatest(requests_at, tokens_at) > t;
        WITH expired AS (
            UPDATE limit_reservations SET ended_at = t, keep_until = t + 86400000000
            WHERE key_id = p_key AND ended_at IS NULL AND expires_at <= t RETURNING *
        ), charge AS (
            SELECT sum(day_tokens) AS of_day, sum(month_tokens) AS of_month FROM expired HAVING count(*) > 0
        )
        UPDATE limit_ledgers SET day_tokens = day_tokens + of_day, month_tokens = month_tokens + of_month
            FROM charge WHERE key_id = p_key;
        DELETE FROM limit_reservations WHERE key_id = p_key AND ended_at IS NOT NULL AND keep_until < t;
        RETURN t;
    END $$""",
    # Refuse a request, or admit it and keep its reservation. One that was admitted before takes its reservation over,
    # is not refused, and is not charged again, so that a repeated call has no further effect. The limits are in the
    # order of `KeyLimits`.
    """CREATE OR REPLACE FUNCTION limits_admit(
        p_key TEXT, p_id TEXT, p_gateway TEXT, p_bound BIGINT, p_requests_per_minute BIGINT, p_tokens_per_minute BIGINT,
        p_concurrent_requests BIGINT, p_tokens_per_day BIGINT, p_tokens_per_month BIGINT, p_lease BIGINT, p_time BIGINT,
        OUT refused TEXT, OUT remaining BIGINT, OUT wait BIGINT, OUT requests NUMERIC, OUT tokens NUMERIC
    ) LANGUAGE plpgsql AS $$
    DECLARE
        t BIGINT := limits_lock(p_key, p_time);
        l limit_ledgers;
        r limit_reservations;
        running BIGINT;
        day_left BIGINT;
        month_left BIGINT;
    BEGIN
        SELECT * INTO l FROM limit_ledgers WHERE key_id = p_key;
        l.requests_level := greatest(0, l.requests_level - COALESCE(p_requests_per_minute, 0)::NUMERIC
            * greatest(0, t - l.requests_at));
        l.tokens_level := greatest(0, l.tokens_level - COALESCE(p_tokens_per_minute, 0)::NUMERIC
            * greatest(0, t - l.tokens_at));
        SELECT count(*), greatest(0, p_tokens_per_day - l.day_tokens - COALESCE(sum(day_tokens), 0)),
            greatest(0, p_tokens_per_month - l.month_tokens - COALESCE(sum(month_tokens), 0))
            INTO running, day_left, month_left
            FROM limit_reservations WHERE key_id = p_key AND ended_at IS NULL;
        requests := l.requests_level;
        tokens := l.tokens_level;
        SELECT * INTO r FROM limit_reservations WHERE id = p_id;
        IF FOUND THEN
            UPDATE limit_ledgers SET
                day_tokens = CASE WHEN r.ended_at >= day THEN day_tokens - r.day_tokens ELSE day_tokens END,
                month_tokens = CASE WHEN r.ended_at >= month THEN month_tokens - r.month_tokens ELSE month_tokens END
                WHERE key_id = p_key;
            UPDATE limit_reservations SET gateway = p_gateway, expires_at = t + p_lease, ended_at = NULL
                WHERE id = p_id;
            tokens := limits_correct(
                p_key, p_id, p_gateway, p_bound, p_tokens_per_minute, p_tokens_per_day, p_tokens_per_month, p_time
            );
            RETURN;
        END IF;
        IF p_tokens_per_day IS NOT NULL AND day_left < greatest(1, least(p_bound, p_tokens_per_day)) THEN
            refused := 'tokens_per_day';
            remaining := day_left;
            wait := l.day + 86400000000 - t;
            RETURN;
        END IF;
        IF p_tokens_per_month IS NOT NULL AND month_left < greatest(1, least(p_bound, p_tokens_per_month)) THEN
            refused := 'tokens_per_month';
            remaining := month_left;
            wait := limits_month(l.month, 1) - t;
            RETURN;
        END IF;
        IF running >= p_concurrent_requests THEN
            refused := 'concurrent_requests';
            RETURN;
        END IF;
        wait := ceil((requests + (1 - p_requests_per_minute)::NUMERIC * 60000000) / p_requests_per_minute);
        IF wait > 0 THEN
            refused := 'requests_per_minute';
            RETURN;
        END IF;
        wait := ceil((tokens + (least(p_bound, p_tokens_per_minute) - p_tokens_per_minute)::NUMERIC * 60000000)
            / p_tokens_per_minute);
        IF wait > 0 THEN
            refused := 'tokens_per_minute';
            RETURN;
        END IF;
        IF p_requests_per_minute IS NOT NULL THEN
            requests := requests + 60000000;
            UPDATE limit_ledgers SET requests_level = requests, requests_at = greatest(t, requests_at)
                WHERE key_id = p_key;
        END IF;
        IF p_tokens_per_minute IS NOT NULL THEN
            tokens := tokens + least(p_bound, p_tokens_per_minute)::NUMERIC * 60000000;
            UPDATE limit_ledgers SET tokens_level = tokens, tokens_at = greatest(t, tokens_at) WHERE key_id = p_key;
        END IF;
        INSERT INTO limit_reservations VALUES (
            p_id, p_key, p_gateway, CASE WHEN p_tokens_per_minute IS NULL THEN NULL
            ELSE least(p_bound, p_tokens_per_minute) END, t, least(p_bound, p_tokens_per_day),
            least(p_bound, p_tokens_per_month), t + p_lease
        );
    END $$""",
    # Replace the amount that a request took from the rate of tokens, as `Bucket.amend` does.
    """CREATE OR REPLACE FUNCTION limits_amend(
        p_key TEXT, p_taken BIGINT, p_taken_at BIGINT, p_amount BIGINT, p_tokens_per_minute BIGINT, t BIGINT
    ) RETURNS VOID LANGUAGE sql AS $$
        UPDATE limit_ledgers SET tokens_at = greatest(t, tokens_at), tokens_level = greatest(
            0,
            greatest(0, tokens_level - p_tokens_per_minute::NUMERIC * greatest(0, t - tokens_at))
            - least((p_taken - p_amount)::NUMERIC * 60000000, greatest(
                0, p_taken::NUMERIC * 60000000 - p_tokens_per_minute::NUMERIC * greatest(0, t - p_taken_at)
            ))
        ) WHERE key_id = p_key AND p_taken IS NOT NULL AND p_tokens_per_minute IS NOT NULL
    $$""",
    # Replace the bound of an open request. Has no effect on one that has ended or expired.
    """CREATE OR REPLACE FUNCTION limits_correct(
        p_key TEXT, p_id TEXT, p_gateway TEXT, p_bound BIGINT, p_tokens_per_minute BIGINT, p_tokens_per_day BIGINT,
        p_tokens_per_month BIGINT, p_time BIGINT
    ) RETURNS NUMERIC LANGUAGE plpgsql AS $$
    DECLARE
        t BIGINT := limits_lock(p_key, p_time);
        r limit_reservations;
    BEGIN
        SELECT * INTO r FROM limit_reservations WHERE id = p_id AND gateway = p_gateway AND ended_at IS NULL;
        IF FOUND THEN
            PERFORM limits_amend(
                p_key, r.taken, r.taken_at, least(p_bound, p_tokens_per_minute), p_tokens_per_minute, t
            );
            UPDATE limit_reservations SET day_tokens = least(p_bound, p_tokens_per_day),
                month_tokens = least(p_bound, p_tokens_per_month),
                taken = CASE WHEN taken IS NULL THEN NULL ELSE least(p_bound, p_tokens_per_minute) END
                WHERE id = p_id;
        END IF;
        RETURN (SELECT tokens_level FROM limit_ledgers WHERE key_id = p_key);
    END $$""",
    # End a request with its charge. One that has ended was charged: only the difference, within the same period.
    """CREATE OR REPLACE FUNCTION limits_settle(
        p_key TEXT, p_id TEXT, p_gateway TEXT, p_charge BIGINT, p_tokens_per_minute BIGINT, p_time BIGINT
    ) RETURNS NUMERIC LANGUAGE plpgsql AS $$
    DECLARE
        t BIGINT := limits_lock(p_key, p_time);
        r limit_reservations;
    BEGIN
        SELECT * INTO r FROM limit_reservations WHERE id = p_id AND gateway = p_gateway;
        IF FOUND THEN
            PERFORM limits_amend(p_key, r.taken, r.taken_at, p_charge, p_tokens_per_minute, t);
            UPDATE limit_ledgers SET
                day_tokens = CASE WHEN r.ended_at IS NULL THEN day_tokens + p_charge
                    WHEN r.ended_at >= day THEN day_tokens + p_charge - r.day_tokens ELSE day_tokens END,
                month_tokens = CASE WHEN r.ended_at IS NULL THEN month_tokens + p_charge
                    WHEN r.ended_at >= month THEN month_tokens + p_charge - r.month_tokens ELSE month_tokens END
                WHERE key_id = p_key;
            UPDATE limit_reservations SET taken = CASE WHEN taken IS NULL THEN NULL ELSE p_charge END,
                day_tokens = p_charge, month_tokens = p_charge, ended_at = COALESCE(ended_at, t),
                keep_until = t + 60000000 WHERE id = p_id;
        END IF;
        RETURN (SELECT tokens_level FROM limit_ledgers WHERE key_id = p_key);
    END $$""",
)
ADMIT = f"SELECT * FROM limits_admit({', '.join('?' * 11)})"  # noqa: S608 - constants
CORRECT = f"SELECT limits_correct({', '.join('?' * 8)})"
SETTLE = f"SELECT limits_settle({', '.join('?' * 6)})"
RENEW = """UPDATE limit_reservations SET expires_at = limits_time(?) + ? WHERE id IN
    (SELECT id FROM limit_reservations WHERE gateway = ? AND ended_at IS NULL FOR UPDATE SKIP LOCKED)"""
"""Never waits, because it locks the rows of many keys without their ledgers. A row that is locked was lost to another
gateway, or has expired."""
RESTORE = """INSERT INTO limit_ledgers (key_id, day, day_tokens, month, month_tokens)
    SELECT ?, t - mod(t, 86400000000), ?, limits_month(t, 0), ? FROM limits_time(?) AS t ON CONFLICT DO NOTHING"""
"""Sets the use of a key before its ledger existed. A ledger that exists has counted it already."""
PROBE: tuple[str, tuple[()]] = ("SELECT 1", ())
"""Call that only checks the connection."""
