"""Reports of metric tables: one HTML page, its figures, and a plain form for terminals.

`reading` collects a bounded number of rows; `contents` holds what a report says; `figures` and `page` draw it. Texts
in tables come from anywhere: `wording.plain` takes control characters out where a row is read, and every output
escapes them.
"""
