package executor

import "sync"

// Queue runs tasks one after another, on a goroutine that exists while there are any, and that Close
// of an engine waits for, as it does for the tasks. Nobody waits for what comes after Close.
//
// Its lock may be taken under any other, and only that of the Executor is taken under it.
type Queue struct {
	exec *Executor
	most int // tasks that wait; 0: no bound

	sync.Mutex // guards what follows
	tasks      []func()
	running    bool
}

// Init sets where the goroutine comes from, and how many tasks may wait; 0: any number.
func (q *Queue) Init(exec *Executor, most int) { q.exec, q.most = exec, most }

// Push adds a task. It never blocks. It reports false if the queue is full.
func (q *Queue) Push(task func()) bool {
	q.Lock()
	defer q.Unlock()
	if q.most > 0 && len(q.tasks) >= q.most {
		return false
	}
	q.tasks = append(q.tasks, task)
	if !q.running {
		q.running = true
		q.exec.Spawn(q.run)
	}
	return true
}

// run runs the tasks. If one ends its goroutine (runtime.Goexit: t.Fatal does that), another goroutine
// goes on after it.
func (q *Queue) run() {
	var batch []func()
	through := false
	defer func() {
		if !through {
			q.Lock()
			q.tasks = append(batch, q.tasks...)
			q.Unlock()
			q.exec.Spawn(q.run)
		}
	}()
	for {
		q.Lock()
		batch = q.tasks
		q.tasks = nil
		q.running = len(batch) > 0
		q.Unlock()
		if len(batch) == 0 {
			through = true
			return
		}
		for len(batch) > 0 {
			task := batch[0]
			batch = batch[1:]
			task()
		}
	}
}
