import static java.util.Map.entry;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;

import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import com.sun.management.OperatingSystemMXBean;

/**
 * Measures Redisson, with its defaults, on the server of its argument, HOST:PORT. It does what
 * lines on standard input ask for, one after another, one answer line for each.
 *
 * <pre>
 *   question  KIND NAME THREADS MS
 *   answer    ok PAIRS NANOS CPU_NANOS P50_NANOS P99_NANOS    or    error CLASS MESSAGE
 * </pre>
 *
 * The threads use that one name. A pair is an acquisition and its release; of a latch it is one
 * count-down. The program ends when standard input does.
 */
public final class Cost {
    private interface Pair {
        void run() throws Exception;
    }

    /** What is measured, and what it needs on the server. */
    private record Work(Pair pair, Pair begin, Pair end) {
    }

    private interface Kind {
        Work of(RedissonClient client, String name, int threads);
    }

    private static final Map<String, Kind> KINDS = Map.ofEntries(
            entry("mutex", (c, name, n) -> locking(c.getLock(name))),
            entry("nonreentrant", (c, name, n) -> locking(c.getNonReentrantLock(name))),
            entry("multi", (c, name, n) -> locking(c.getMultiLock(c.getLock(name + ":1"), c.getLock(name + ":2")))),
            entry("spin", (c, name, n) -> locking(c.getSpinLock(name))),
            entry("fair", (c, name, n) -> locking(c.getFairLock(name))),
            entry("fenced", (c, name, n) -> locking(c.getFencedLock(name))),
            entry("reader", (c, name, n) -> locking(c.getReadWriteLock(name).readLock())),
            entry("writer", (c, name, n) -> locking(c.getReadWriteLock(name).writeLock())),
            entry("permit", (c, name, n) -> {
                RPermitExpirableSemaphore s = c.getPermitExpirableSemaphore(name);
                return new Work(() -> s.release(s.acquire(30, SECONDS)), () -> s.trySetPermits(n), s::delete);
            }),
            entry("semaphore", (c, name, n) -> {
                RSemaphore s = c.getSemaphore(name);
                return new Work(() -> {
                    s.acquire();
                    s.release();
                }, () -> s.trySetPermits(n), s::delete);
            }),
            entry("latch", (c, name, n) -> {
                RCountDownLatch l = c.getCountDownLatch(name);
                return new Work(l::countDown, () -> l.trySetCount(Integer.MAX_VALUE), l::delete);
            }));

    private static Work locking(RLock lock) {
        return new Work(() -> {
            lock.lock();
            lock.unlock();
        }, () -> { }, () -> { });
    }

    public static void main(String[] args) throws IOException {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + args[0]);
        RedissonClient client = Redisson.create(config);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(client, line.split(" ")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(RedissonClient client, String[] words) {
        try {
            int threads = Integer.parseInt(words[2]);
            Work work = KINDS.get(words[0]).of(client, words[1], threads);
            work.begin.run();
            String figures = measure(work.pair, threads, MILLISECONDS.toNanos(Long.parseLong(words[3])));
            work.end.run();
            return "ok " + figures;
        } catch (Throwable e) {
            return "error " + e.getClass().getSimpleName() + " " + String.valueOf(e.getMessage()).replace('\n', ' ');
        }
    }

    private static String measure(Pair pair, int threads, long time) throws Exception {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            long used = system.getProcessCpuTime();
            long start = System.nanoTime();
            Callable<long[]> worker = () -> {
                long[] took = new long[1024];
                int n = 0;
                for (long last = System.nanoTime(); n == 0 || last - start < time; n++) { // at least one, on a busy machine, too
                    pair.run();
                    long now = System.nanoTime();
                    if (n == took.length) {
                        took = Arrays.copyOf(took, 2 * n);
                    }
                    took[n] = now - last;
                    last = now;
                }
                return Arrays.copyOf(took, n);
            };
            LongStream all = LongStream.empty();
            for (Future<long[]> f : pool.invokeAll(Collections.nCopies(threads, worker))) {
                all = LongStream.concat(all, Arrays.stream(f.get()));
            }
            long elapsed = System.nanoTime() - start;
            used = system.getProcessCpuTime() - used;
            long[] took = all.sorted().toArray();
            return took.length + " " + elapsed + " " + used + " " + took[took.length / 2] + " " + took[(int) (took.length * 0.99)];
        } finally {
            pool.shutdown();
        }
    }
}
