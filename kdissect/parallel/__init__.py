"""One capture, several processes: START HERE for ``-j N``.

What becomes of a connection depends on its own packets alone (net/connection.py). So each of N workers reads
the same files, skips the packets of other connections, and dissects those of its ``Shard``. Two things cross
connections: the order of the output and the names of topic IDs; the parent handles both, with the same
classes that a single process uses.

    worker                                               parent
    ------                                               ------
    WorkerBatch  what the next packets completed: the    ->  assembling.py merges the batches of all workers
                 place of each row, and its output           by place, through Ordering and
                 (usually bytes), or a mark that it is       TopicNameResolver where needed
                 open: it has topic IDs without a name
                                                         <-  ParentUpdate: how far all workers are merged;
                                                             topic names learned; names for open rows whose
                                                             turn has come
    LateRows     the output of these rows                ->  they take their place in the output
    WorkerEnd    the capture is read: counts, warnings,  ->  they are added up
                 results (a summary)
                                                         <-  Stop: nothing more is needed

If names may come from any part of the capture, and for an export, workers read the files twice: first each
sends the ``LearnedFacts`` of its connections, and gets those of all. Then no row is open.

A place is the number of the TCP segment that completed the row: all workers count all segments, so places
agree. A row without unnamed IDs, on a connection without open rows, needs nothing from the parent. That is
nearly every row, so the parent mostly sorts finished lines by place and writes them.

Large messages go through memory that a worker shares with the parent, and are announced in a pipe.

Nothing waits forever. A worker sends at most ``AHEAD`` batches beyond the place that all workers have
reached, and the slowest one is never ahead. A thread of each worker receives what the parent sends,
regardless of its main thread; the parent reads from all workers. A process that dies closes its pipe: workers
exit without their parent, and the parent reports which worker died.

    worker.py       the worker: exchanges to text, or to the sums of a summary
    tables.py       rows of an export
    assembling.py   the messages, and the parent: rows of all workers -> their order
    worker_pool.py  processes and pipes

cli/jobs.py decides when to use them.
"""
