# Berkeley DB as bench_001 and bench_002 of sendmail X use it: a transaction for each record, and a sync of the log after a group of them.
# Arguments: btree or queue, the directory, the length of a record, the directory of the log. Reads `put FIRST END` and `checkpoint`,
# and answers each with `ok` when it is durable.
import sys
from bsddb3 import db

method, home, length, logs = sys.argv[1:]
value = b"v" * int(length)
env = db.DBEnv()
env.set_cachesize(0, 16 << 20)
env.set_lg_dir(logs)
env.open(home, db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_INIT_TXN | db.DB_INIT_LOG | db.DB_INIT_LOCK | db.DB_RECOVER | db.DB_PRIVATE)
store = db.DB(env)
if method == "queue":
    store.set_re_len(int(length))
store.open(method, dbtype=db.DB_QUEUE if method == "queue" else db.DB_BTREE, flags=db.DB_CREATE | db.DB_AUTO_COMMIT)
print("ok", db.version(), flush=True)
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "put":
        for number in range(*map(int, numbers)):
            transaction = env.txn_begin(flags=db.DB_TXN_NOSYNC)
            if method == "queue":
                store.append(value, transaction)
            else:
                store.put(b"%020d" % number, value, transaction)
            transaction.commit(db.DB_TXN_NOSYNC)
        env.log_flush()
    else:
        env.txn_checkpoint()
        env.log_archive(db.DB_ARCH_REMOVE)
    print("ok", flush=True)
store.close()
env.close()
