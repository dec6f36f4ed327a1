import static java.util.Map.entry;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.MINUTES;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;

import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * Does with Redisson what lines on standard input ask for, one answer line for each.
 *
 * <pre>
 *   question  ID THREAD VERB WORD...
 *   answer    ID ok WORD...    or    ID error CLASS MESSAGE
 * </pre>
 *
 * THREAD names the thread that does it, made at its first use: to Redisson a thread is an owner.
 * What one thread is asked is done in order; threads do not wait for each other. The program
 * ends when standard input does, at once and without unlocking anything.
 *
 * A lock is given by its kind and its places. A place is CLIENT/NAME; multi and red have several,
 * with commas between. Times are in ms, and a lease of -1 means the watchdog.
 */
public final class Peer {
    /** What a verb does. */
    private interface Verb {
        Object run(String[] words) throws Exception;
    }

    private static final Map<String, RedissonClient> CLIENTS = new ConcurrentHashMap<>();

    private static final Map<String, Thread> THREADS = new ConcurrentHashMap<>();

    private static final Map<String, Verb> VERBS = Map.ofEntries(
            entry("ping", w -> ""),
            // VERB WORD... -> when it began, when it ended, what it answers; in ns since 1970
            entry("timed", w -> timed(w)),
            // THREAD... -> do all of them sleep until a message comes?
            entry("asleep", w -> Stream.of(w).allMatch(name -> sleeps(THREADS.get(name)))),
            // CLIENT single|cluster ADDRESSES WATCHDOG AUTO|ON|OFF
            entry("open", w -> open(w[0], w[1], w[2].split(","), Long.parseLong(w[3]), w[4])),
            // CLIENT
            entry("close", w -> {
                CLIENTS.remove(w[0]).shutdown();
                return "";
            }),
            // CLIENT -> the owner that this thread is
            entry("owner", w -> CLIENTS.get(w[0]).getId() + ":" + Thread.currentThread().getId()),
            // KIND PLACES LEASE
            entry("lock", w -> {
                lock(w).lock(Long.parseLong(w[2]), MILLISECONDS);
                return "";
            }),
            // KIND PLACES WAIT LEASE -> true or false
            entry("try", w -> lock(w).tryLock(Long.parseLong(w[2]), Long.parseLong(w[3]), MILLISECONDS)),
            // KIND PLACES SECONDS -> true or false
            entry("tryseconds", w -> lock(w).tryLock(Long.parseLong(w[2]), SECONDS)),
            // KIND PLACES, fenced -> the token
            entry("fence", w -> ((RFencedLock) lock(w)).lockAndGetToken()),
            // KIND PLACES
            entry("unlock", w -> {
                lock(w).unlock();
                return "";
            }),
            // KIND PLACES -> true or false
            entry("force", w -> lock(w).forceUnlock()),
            // KIND PLACES -> true or false
            entry("locked", w -> lock(w).isLocked()),
            // KIND PLACES -> locked? by this thread? how often? for how long?
            entry("state", w -> {
                RLock l = lock(w);
                return l.isLocked() + " " + l.isHeldByCurrentThread() + " " + l.getHoldCount() + " " + l.remainTimeToLive();
            }),
            // PLACE NUMBER WAIT LEASE -> ids, with spaces between, or nothing
            entry("permits-take", w -> String.join(" ",
                    permits(w).tryAcquire(Integer.parseInt(w[1]), Long.parseLong(w[2]), Long.parseLong(w[3]), MILLISECONDS))),
            // PLACE ID -> true or false
            entry("permits-give", w -> permits(w).tryRelease(w[1])),
            // PLACE ID LEASE -> true or false
            entry("permits-extend", w -> permits(w).updateLeaseTime(w[1], Long.parseLong(w[2]), MILLISECONDS)),
            // PLACE ID -> ms
            entry("permits-left", w -> permits(w).getLeaseTime(w[1])),
            // PLACE NUMBER
            entry("permits-add", w -> {
                permits(w).addPermits(Integer.parseInt(w[1]));
                return "";
            }),
            // PLACE -> how many are to be had, are held, there are
            entry("permits-count", w -> {
                RPermitExpirableSemaphore p = permits(w);
                return p.availablePermits() + " " + p.acquiredPermits() + " " + p.getPermits();
            }),
            // PLACE NUMBER -> true or false
            entry("semaphore-set", w -> semaphore(w).trySetPermits(Integer.parseInt(w[1]))),
            // PLACE NUMBER WAIT -> true or false
            entry("semaphore-try", w -> semaphore(w).tryAcquire(Integer.parseInt(w[1]), Duration.ofMillis(Long.parseLong(w[2])))),
            // PLACE NUMBER
            entry("semaphore-acquire", w -> {
                semaphore(w).acquire(Integer.parseInt(w[1]));
                return "";
            }),
            // PLACE NUMBER
            entry("semaphore-release", w -> {
                semaphore(w).release(Integer.parseInt(w[1]));
                return "";
            }),
            // PLACE NUMBER, may be negative
            entry("semaphore-add", w -> {
                semaphore(w).addPermits(Integer.parseInt(w[1]));
                return "";
            }),
            // PLACE -> how many there were
            entry("semaphore-drain", w -> semaphore(w).drainPermits()),
            // PLACE -> how many there are
            entry("semaphore-count", w -> semaphore(w).availablePermits()),
            // PLACE NUMBER -> true or false
            entry("latch-set", w -> latch(w).trySetCount(Long.parseLong(w[1]))),
            // PLACE
            entry("latch-down", w -> {
                latch(w).countDown();
                return "";
            }),
            // PLACE WAIT -> true if it opened
            entry("latch-await", w -> latch(w).await(Long.parseLong(w[1]), MILLISECONDS)),
            // PLACE -> what is left
            entry("latch-count", w -> latch(w).getCount()),
            // KIND PLACES THREADS SECTIONS TIME COUNTER CAPACITY -> sections done, how many were too many,
            // longest wait, most inside; KIND may be semaphore or permits, too
            entry("contend", w -> contend(door(w), Integer.parseInt(w[2]), Integer.parseInt(w[3]), Long.parseLong(w[4]), w[5],
                    Integer.parseInt(w[6]))),
            // KIND PLACES THREADS TIME -> how many turns they have had, without a pause
            entry("turns", w -> turns(lock(w), Integer.parseInt(w[2]), Long.parseLong(w[3]))),
            // KIND PLACES THREADS SECTIONS TIME COUNTER, of those who only look
            // -> sections done, how often somebody wrote meanwhile, longest wait
            entry("watch", w -> contend(door(w), Integer.parseInt(w[2]), Integer.parseInt(w[3]), Long.parseLong(w[4]), w[5], 0)));

    public static void main(String[] args) throws IOException {
        Map<String, ExecutorService> threads = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 4);
            threads.computeIfAbsent(words[1], name -> Executors.newSingleThreadExecutor(run -> {
                THREADS.put(name, new Thread(run));
                return THREADS.get(name);
            }))
                    .execute(() -> say(words[0] + " " + answer(words[2], words.length > 3 ? words[3].split(" ") : new String[0])));
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String answer(String verb, String[] words) {
        try {
            return ("ok " + VERBS.get(verb).run(words)).trim();
        } catch (Throwable e) {
            return "error " + e.getClass().getSimpleName() + " " + String.valueOf(e.getMessage()).replace('\n', ' ');
        }
    }

    private static String timed(String[] words) throws Exception {
        long began = now();
        Object answer = VERBS.get(words[0]).run(Arrays.copyOfRange(words, 1, words.length));
        return began + " " + now() + " " + answer;
    }

    private static long now() {
        Instant now = Instant.now();
        return SECONDS.toNanos(now.getEpochSecond()) + now.getNano();
    }

    /**
     * Redisson's waiters sleep in these, when they have been refused a second time, and in nothing
     * else. Only a message or the end of a lease wakes them then.
     */
    private static boolean sleeps(Thread thread) {
        return Stream.of(thread.getStackTrace()).map(StackTraceElement::getClassName)
                .anyMatch(c -> c.equals("java.util.concurrent.Semaphore") || c.equals("org.redisson.misc.ReclosableLatch"));
    }

    private static String open(String client, String kind, String[] addresses, long watchdog, String sharded) {
        Config config = new Config().setLockWatchdogTimeout(watchdog).setThreads(4).setNettyThreads(4);
        String[] urls = Stream.of(addresses).map(a -> "redis://" + a).toArray(String[]::new);
        switch (kind) { // fewer connections than by default: tests open many clients
            case "single" -> config.useSingleServer().setAddress(urls[0])
                    .setConnectionMinimumIdleSize(1).setConnectionPoolSize(16);
            case "cluster" -> config.useClusterServers().addNodeAddress(urls)
                    .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(16)
                    .setReadMode(ReadMode.MASTER).setScanInterval(1000)
                    .setShardedSubscriptionMode(ShardedSubscriptionMode.valueOf(sharded));
            default -> throw new IllegalArgumentException("no deployment " + kind);
        }
        CLIENTS.put(client, Redisson.create(config));
        return "";
    }

    /** The lock that a question begins with. */
    private static RLock lock(String[] words) {
        RLock[] locks = Stream.of(words[1].split(",")).map(p -> member(words[0], p)).toArray(RLock[]::new);
        return switch (words[0]) {
            case "multi" -> new RedissonMultiLock(locks);
            case "red" -> new RedissonRedLock(locks);
            default -> locks[0];
        };
    }

    private static RLock member(String kind, String place) {
        RedissonClient client = client(place);
        String name = name(place);
        return switch (kind) {
            case "plain", "multi", "red" -> client.getLock(name);
            case "spin" -> client.getSpinLock(name);
            case "nonreentrant" -> client.getNonReentrantLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "fair" -> client.getFairLock(name);
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "read" -> client.getReadWriteLock(name).readLock();
            default -> throw new IllegalArgumentException("no kind " + kind);
        };
    }

    private static RPermitExpirableSemaphore permits(String[] words) {
        return client(words[0]).getPermitExpirableSemaphore(name(words[0]));
    }

    private static RSemaphore semaphore(String[] words) {
        return client(words[0]).getSemaphore(name(words[0]));
    }

    private static RCountDownLatch latch(String[] words) {
        return client(words[0]).getCountDownLatch(name(words[0]));
    }

    private static RedissonClient client(String place) {
        return CLIENTS.get(place.substring(0, place.indexOf('/')));
    }

    private static String name(String place) {
        return place.substring(place.indexOf('/') + 1);
    }

    /** What a thread goes through to get in, and what it does to get out again. */
    private interface Door {
        Runnable enter() throws Exception;
    }

    private static Door door(String[] words) {
        String place = words[1];
        switch (words[0]) {
            case "semaphore":
                RSemaphore semaphore = semaphore(new String[] {place});
                return () -> {
                    semaphore.acquire();
                    return semaphore::release;
                };
            case "permits":
                RPermitExpirableSemaphore permits = permits(new String[] {place});
                return () -> {
                    String id = permits.acquire(1, MINUTES);
                    return () -> permits.release(id);
                };
            default:
                RLock lock = lock(words);
                return () -> {
                    lock.lock();
                    return lock::unlock;
                };
        }
    }

    /** Threads that take a lock and give it back, again and again, until the time is over. */
    private static long turns(RLock lock, int threads, long time) throws Exception {
        AtomicLong done = new AtomicLong();
        long end = System.nanoTime() + MILLISECONDS.toNanos(time);
        Callable<Void> worker = () -> {
            while (System.nanoTime() < end) {
                lock.lock();
                lock.unlock();
                done.incrementAndGet();
            }
            return null;
        };
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            for (Future<Void> f : pool.invokeAll(Collections.nCopies(threads, worker))) {
                f.get();
            }
        } finally {
            pool.shutdown();
        }
        return done.get();
    }

    /**
     * Threads that enter again and again, until each has done its sections or the time is over. A key
     * says how many are inside: more than the capacity are too many. A counter that they read and
     * write back loses counts if another one is inside. Those who only look, with a capacity of 0, see
     * whether anybody is inside, or the counter changes.
     */
    private static String contend(Door door, int threads, int sections, long time, String counter, int capacity) throws Exception {
        var count = client(counter).<String>getBucket(name(counter), StringCodec.INSTANCE);
        var inside = client(counter).getAtomicLong(name(counter) + ":inside");
        AtomicLong done = new AtomicLong();
        AtomicLong overlaps = new AtomicLong();
        AtomicLong longest = new AtomicLong();
        AtomicLong most = new AtomicLong();
        long start = System.nanoTime();
        Callable<Void> worker = () -> {
            for (int i = 0; i < sections && System.nanoTime() - start < MILLISECONDS.toNanos(time); i++) {
                long began = System.nanoTime();
                Runnable leave = door.enter();
                longest.accumulateAndGet(System.nanoTime() - began, Math::max);
                try {
                    if (capacity > 0) {
                        long in = inside.incrementAndGet();
                        most.accumulateAndGet(in, Math::max);
                        overlaps.addAndGet(Math.max(in - capacity, 0));
                    }
                    String n = count.get();
                    if (capacity == 0) {
                        LockSupport.parkNanos(ThreadLocalRandom.current().nextInt(2_000_000));
                        overlaps.addAndGet(inside.get() != 0 || !Objects.equals(n, count.get()) ? 1 : 0);
                    } else {
                        count.set(String.valueOf(Long.parseLong(n == null ? "0" : n) + 1));
                        inside.decrementAndGet();
                    }
                } finally {
                    leave.run();
                }
                done.incrementAndGet();
                LockSupport.parkNanos(ThreadLocalRandom.current().nextInt(10_000_000)); // others have a chance
            }
            return null;
        };
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            for (Future<Void> f : pool.invokeAll(Collections.nCopies(threads, worker))) {
                f.get();
            }
        } finally {
            pool.shutdown();
        }
        return done + " " + overlaps + " " + longest.get() / 1_000_000 + " " + most;
    }
}
