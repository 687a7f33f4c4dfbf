-- Alert: the last run that counted rows rejected more than a share of them on :night.
-- One row for each command and data set; no rows, no alert. Runs reject bad rows under --on-invalid reject.
--
-- :night           the night to look at, as DATE'2026-01-31'
-- :rejected_share  0.001 for 0.1 %; must be below --max-reject-fraction, above which a job is refused
-- Put the name of your run log in place of prod.run_log.
WITH last_runs AS (
  SELECT command, dataset, max_by(struct(run_id, rows_read, rows_rejected), started_at) AS latest
  FROM prod.run_log
  WHERE run_date = :night
    AND rows_read > 0
  GROUP BY command, dataset
)
SELECT command, dataset, latest.run_id, latest.rows_read, latest.rows_rejected
FROM last_runs
WHERE latest.rows_rejected / latest.rows_read > :rejected_share
ORDER BY command, dataset
