"""Credentials are hidden in logs and stored texts, and all other text is unchanged.

Forms: RFC 3986 (user information in URLs), presigned URLs of S3 (`X-Amz-...`), shared access signatures of Azure
(`sig`), settings of the Hadoop connectors (`fs.s3a.secret.key`, `fs.azure.account.key.NAME...`), JDBC URLs, headers.
Keys are the examples of the vendors' documentation, or made up.
"""

from __future__ import annotations

import time

import pytest
from support.main_job import assert_refused, mean_ndcg, read_stored_rows, run_mean_ndcg, write_rows
from support.oracle import build_ranking

from ndcg_spark.core.redaction import redact, redact_values

SECRETS = {
    "password in a URL": ("jdbc:postgresql://etl:S3CRET@db:5432/x", "jdbc:postgresql://etl:***@db:5432/x"),
    "password with an at sign": ("mysql://etl:S3CRET@S3CRET@db/x", "mysql://etl:***@db/x"),
    "password without user": ("redis://:S3CRET@cache:6379", "redis://:***@cache:6379"),
    "S3 keys with slashes": ("s3n://AKIAIOSFODNN7EXAMPLE:S3C/RE/T@bucket/a/b", "s3n://***@bucket/a/b"),
    "token as user": ("https://S3CRET@github.com/a/b.git", "https://***@github.com/a/b.git"),
    "SAS": ("wasbs://c@a.blob.core.windows.net/f?sv=2024&sig=S3CRET%3D&se=9",
            "wasbs://c@a.blob.core.windows.net/f?sv=2024&sig=***&se=9"),
    "presigned": ("https://b.s3.amazonaws.com/f?X-Amz-Credential=S3CRET%2F20260131&X-Amz-Date=2026&"
                  "X-Amz-Signature=S3CRET&X-Amz-Security-Token=S3CRET",
                  "https://b.s3.amazonaws.com/f?X-Amz-Credential=***&X-Amz-Date=2026&"
                  "X-Amz-Signature=***&X-Amz-Security-Token=***"),
    "Azure account key": ("fs.azure.account.key.acct.dfs.core.windows.net=S3CRET==",
                          "fs.azure.account.key.acct.dfs.core.windows.net=***"),
    "S3A secret key": ("--conf spark.hadoop.fs.s3a.secret.key=S3CRET --x 1",
                       "--conf spark.hadoop.fs.s3a.secret.key=*** --x 1"),
    "access key": ("fs.s3a.access.key=S3CRET", "fs.s3a.access.key=***"),
    "access_key": ("access_key=S3CRET;region=eu", "access_key=***;region=eu"),
    "AWS": ("AWSAccessKeyId=S3CRET&Signature=S3CRET", "AWSAccessKeyId=***&Signature=***"),
    "JDBC properties": ("jdbc:sqlserver://h;user=etl;password=S3CRET;encrypt=true",
                        "jdbc:sqlserver://h;user=etl;password=***;encrypt=true"),
    "pwd": ("jdbc:x:UID=a;PWD=S3CRET", "jdbc:x:UID=a;PWD=***"),
    "SQL options": ("CREATE TABLE t USING jdbc OPTIONS (password 'S3 CRET', dbtable 'a')",
                    "CREATE TABLE t USING jdbc OPTIONS (password '***', dbtable 'a')"),
    "JSON": ('{"api_key": "S3\\"CRET", "k": 10}', '{"api_key": "***", "k": 10}'),
    "dict": ("{'client_secret': 'S3CRET', 'k': 10}", "{'client_secret': '***', 'k': 10}"),
    "quoted": ('password="S3 CRET" k=10', 'password="***" k=10'),
    "header": ("Authorization: Bearer S3CRET.S3CRET-x", "Authorization: Bearer ***"),
    "Databricks": ("dapi0123456789abcdef0123456789abcdef failed", "*** failed"),
    "AWS key by its form": ("user AKIAIOSFODNN7EXAMPLE has no rights", "user *** has no rights"),
    "token": ("?token=S3CRET&x=1", "?token=***&x=1"),
    "percent-encoded": ("?next=%2Fa%3Ftoken%3DS3CRET", "?next=%2Fa%3Ftoken%3D***"),
    "a quote without its end": ('cut off: password="S3CRET', "cut off: password=***"),
    "Oracle": ("jdbc:oracle:thin:scott/S3CRET@//db:1521/x", "jdbc:oracle:thin:scott/***@//db:1521/x"),
    "Oracle, quoted": ('jdbc:oracle:oci:scott/"S3@CRET"@db', "jdbc:oracle:oci:scott/***@db"),
    "upper case": ("PASSWORD=S3CRET", "PASSWORD=***"),
    "arguments of SQL": ("SELECT * FROM f(user => 'u', password => 'S3CRET', k => 1)",
                         "SELECT * FROM f(user => 'u', password => '***', k => 1)"),
    "backticks": ("OPTIONS (`password` 'S3 CRET')", "OPTIONS (`password` '***')"),
    "a quote within quotes": ("password: 'it''s S3CRET', k: 1", "password: '***', k: 1"),
    "password with a slash": ("jdbc:mysql://etl:p@ss/S3CRET@db/x", "jdbc:mysql://etl:***@db/x"),
    "password in braces": ("jdbc:sqlserver://h;password={a;S3CRET};encrypt=true",
                           "jdbc:sqlserver://h;password=***;encrypt=true"),
    "pass": ("jdbc:x://h/db?user=a&pass=S3CRET", "jdbc:x://h/db?user=a&pass=***"),
    "JSON Web Token": ("sent eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.S3CRET to h", "sent *** to h"),
    "Vault": ("got hvs.S3CRET0123456789012345 back", "got *** back"),
    "GitLab": ("git: glpat-S3CRET01234567890123", "git: ***"),
    "Slack": ("xoxb-0123456789-S3CRET", "***"),
    "Google": ("key AIzaS3CRET01234567890123456789012345678", "key ***"),
    "private key": ("-----BEGIN RSA PRIVATE KEY-----\nS3CRET\nS3CRET==\n-----END RSA PRIVATE KEY-----",
                    "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SECRETS.values(), ids=SECRETS)
def test_a_credential_is_hidden(text: str, expected: str) -> None:
    actual = redact(text)
    assert actual == expected
    assert "S3C" not in actual


@pytest.mark.parametrize(("text", "expected"), SECRETS.values(), ids=SECRETS)
def test_hiding_twice_changes_nothing(text: str, expected: str) -> None:
    assert redact(expected) == expected
    assert redact(f"cannot read {text!r}: no rights") == redact(redact(f"cannot read {text!r}: no rights"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3://bucket/rankings/run_date=2026-01-31",
        "abfss://container@account.dfs.core.windows.net/rankings",
        "hdfs://name:8020/user/etl@corp/rankings",
        "prod.ranking_metrics",
        "--gate ndcg@10>=0.40",
        "SELECT query_id, score FROM prod.rankings WHERE run_date = '2026-01-31'",
        "metrics: p(rel=2)@5, ndcg@10",
        "sigma=2; design=a; author=b; tokens per query: many",
        "query_id=shoes; k=10; key=a",
        "column 'password' is not in the table",
        "http://localhost:4040/jobs",
        "jdbc:oracle:thin:@//db:1521/x",
        "a thin: one/two list @ 3",
        "pass: 3; passes = 2; compass=north",
        "spark://h1:7077,h2:7077",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "word",
    [
        "password",
        "a",
        "token.",
        "secret=",
        "://",
        "x:",
        "pass'",
        "://a:",
        "thin:a/",
        "token='",
        "token={",
        "eyJ",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_redaction_time_is_linear_in_the_length(word: str) -> None:
    began = time.process_time()
    redact(word * 20_000)
    assert time.process_time() - began < 20  # milliseconds if it grows linearly, else minutes


def test_values_within_values() -> None:
    actual = redact_values({"options": ["password=S3CRET", "header=true"], "k": 10, "token": "S3CRET", "path": None})
    assert actual == {"options": ["password=***", "header=true"], "k": 10, "token": "***", "path": None}


@pytest.mark.parametrize(
    "value", ["p&ss word", "&abc", '"abc', "a;b=c", "-----BEGIN PRIVATE KEY----- MIIE x", "'a'", ""]
)
@pytest.mark.parametrize("name", ["password", "pem_private_key", "spark.hadoop.fs.s3a.secret.key"])
def test_a_secret_name_hides_the_whole_value(name: str, value: str) -> None:
    """The end of the value is known here."""
    actual = redact_values({name: value, "options": [f"{name}={value}", "header=true"]})
    assert actual == {name: "***", "options": [f"{name}=***", "header=true"]}
    assert redact_values(actual) == actual


def test_secrets_of_other_types_are_hidden() -> None:
    actual = redact_values({"password": 7, "token": ["a", 1], "secret": {"a": 1}, "sig": False, "pwd": None})
    assert actual == {"password": "***", "token": "***", "secret": "***", "sig": "***", "pwd": None}


def test_lists_of_other_texts_are_unchanged() -> None:
    texts = [
        "https://host/f?sv=2024&sig=S3CRET&se=9",
        "SELECT a WHERE token = 'S3CRET' AND b",
        "ndcg@10>=0.4",
        "token",
    ]
    assert redact_values(texts) == [
        "https://host/f?sv=2024&sig=***&se=9", "SELECT a WHERE token = '***' AND b", "ndcg@10>=0.4", "token"
    ]  # fmt: skip


def test_credentials_are_not_stored_or_shown(spark, tmp_path):
    good = write_rows(tmp_path / "rows.parquet", build_ranking([3, 0, 1]))
    spark.read.parquet(str(good)).createOrReplaceTempView("credentials_input")
    query = "SELECT * FROM credentials_input WHERE 'password=hunter2' <> ''"
    ended = run_mean_ndcg("--input", query, "--dataset", "web", "--output", tmp_path / "metrics", "--json", "-")
    spark.catalog.dropTempView("credentials_input")
    (stored,) = {row["input"] for row in read_stored_rows(tmp_path / "metrics")}
    assert stored.startswith("sql:SELECT * FROM credentials_input")
    assert "hunter2" not in stored + ended.out + ended.err
    refused = mean_ndcg("--input", "s3://AKIAKEY:hunter2@bucket/rows.parquet", "--output", tmp_path / "other")
    assert_refused(refused, "***@bucket/rows.parquet")
    assert "hunter2" not in refused.err
    explained = run_mean_ndcg("--input", good, "--explain", "--output", f"{tmp_path}/x&sig=hunter2")
    assert "hunter2" not in explained.out
