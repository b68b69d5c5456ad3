"""What every wing stands on: the schema, transactions and locks, time, ids, pages and claims."""
