"""An order pipeline whose processes are killed: guards inside its steps, and a durable engine around them.

    python -m examples.durable [--postgres] [--kills 20]
    DURABLE_DATABASE=postgresql://user:password@host/database python -m examples.durable

The database is a temporary file of SQLite. `--postgres` starts a PostgreSQL server on a free port, with a
directory that is removed at the end; the variable names an empty database of yours. The exit status is 0 if all
promises of `promises.py` were kept, and 2 if something has to be installed first. The part to copy is `pipeline.py`.
"""
