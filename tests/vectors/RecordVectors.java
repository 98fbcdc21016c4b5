import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Record data that a release of Kafka writes in every format it knows, and what its own reader says of it.
 *
 * <p>One line of JSON for each. Of the releases from 0.8.2 to 4 no two have the same classes, so all of them are
 * called by name: find() looks for a class where releases keep it, call() for a method that takes the arguments.
 */
public final class RecordVectors {
    private static final long BASE_MS = 1_700_000_000_000L;
    private static final long NO_TIMESTAMP = -1;
    private static final Producer NOBODY = new Producer(-1L, (short) -1, -1, false);
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private static String release;

    private record Item(long offset, long timestamp, byte[] key, byte[] value, Object[] headers) { }

    private record Producer(long id, short epoch, int sequence, boolean isTransactional) { }

    /** Arguments: the release whose jars these are. */
    public static void main(String[] arguments) throws Exception {
        release = arguments[0];
        if (release.startsWith("0.8") || release.startsWith("0.9")) {
            oldest();
        } else if (release.startsWith("0.10")) {
            messageSets();
        } else {
            batches();
        }
        OUT.flush();
    }

    // What is written

    private static List<Item> few(int magic, long base) throws Exception {
        Object[] headers = magic < 2 ? null : headers("trace", "42", "empty", "", "null", null, "trace", "öä");
        return List.of(
            new Item(base, stamp(magic, 7), utf8("key"), utf8("value"), null),
            new Item(base + 1, stamp(magic, -9), null, utf8("x".repeat(500)), headers),
            new Item(base + 2, stamp(magic, 0), utf8(""), null, null),
            new Item(base + 3, stamp(magic, 0), utf8("ключ"), utf8(""), headers));
    }

    /** More than one block of any codec. */
    private static List<Item> many(int magic, long base) throws Exception {
        List<Item> items = new ArrayList<>();
        for (int i = 0; i < 400; i++) {
            byte[] value = utf8("value " + i + " of an order " + "abcdefgh".repeat(25));
            items.add(new Item(base + i, stamp(magic, i * 5L), utf8("customer-" + i % 7), value, null));
        }
        return items;
    }

    /** As compaction leaves it; times that need every byte of a varlong, and none at all. */
    private static List<Item> gaps(int magic, long base) throws Exception {
        return List.of(
            new Item(base + 3, stamp(magic, 0), utf8("a"), utf8("1"), null),
            new Item(base + 70, magic == 0 ? NO_TIMESTAMP : 0, utf8("b"), utf8("2"), null),
            new Item(base + 200_000, magic == 0 ? NO_TIMESTAMP : 1L << 61, utf8("c"), utf8("3"), null),
            new Item(base + 200_001, NO_TIMESTAMP, utf8("d"), utf8("4"), null));
    }

    private static Map<String, List<Item>> items(int magic, long base) throws Exception {
        Map<String, List<Item>> found = new LinkedHashMap<>();
        found.put("few", few(magic, base));
        found.put("many", many(magic, base));
        found.put("gaps", gaps(magic, base));
        return found;
    }

    /** 0.8.2 and 0.9: magic 0 from a class that only appends. */
    private static void oldest() throws Exception {
        for (String codec : codecs(0)) {
            for (Map.Entry<String, List<Item>> set : items(0, 0).entrySet()) {
                ByteBuffer empty = ByteBuffer.allocate(1 << 20);
                Object records = call(find("MemoryRecords"), "emptyRecords", empty, codec(codec));
                for (Item item : set.getValue()) {
                    call(records, "append", item.offset, item.key, item.value);
                }
                call(records, "close");
                ByteBuffer buffer = (ByteBuffer) call(records, "buffer");
                String name = "magic 0, " + codec + ", " + set.getKey();
                if (release.startsWith("0.8")) {
                    tell(name, bytes(buffer.flip()), set.getValue());
                } else {
                    tell(name, bytes(buffer));
                }
            }
        }
    }

    /** 0.10: magic 0 and 1. */
    private static void messageSets() throws Exception {
        for (int magic = 0; magic < 2; magic++) {
            for (String codec : codecs(magic)) {
                for (String type : List.of("CREATE_TIME", "LOG_APPEND_TIME").subList(0, magic + 1)) {
                    for (Map.Entry<String, List<Item>> set : items(magic, 100).entrySet()) {
                        Object builder = call(
                            find("MemoryRecords"), "builder", ByteBuffer.allocate(1 << 20), (byte) magic, codec(codec),
                            timestampType(type), 100L, BASE_MS + 77);
                        String name = "magic " + magic + ", " + codec + ", " + type + ", " + set.getKey();
                        tell(name, appended(builder, set.getValue()));
                    }
                }
            }
        }
    }

    /** 0.11 and later: every magic, as far as the release still writes it. */
    private static void batches() throws Exception {
        for (int magic = 0; magic < 3; magic++) {
            for (String codec : codecs(magic)) {
                kinds(magic, codec);
            }
        }
        if (hasMethod("downConvert")) {
            downConverted();
        }
        mixed();
        empty();
        markers();
        if (!release.startsWith("0.") && !release.startsWith("1.")) {
            deleteHorizon();
            quorum();
        }
    }

    private static void kinds(int magic, String codec) throws Exception {
        String name = "magic " + magic + ", " + codec + ", ";
        for (Map.Entry<String, List<Item>> set : items(magic, 1L << 40).entrySet()) {
            byte[] raw = built(magic, codec, "CREATE_TIME", 1L << 40, NOBODY, set.getValue());
            tell(name + "CREATE_TIME, " + set.getKey(), raw);
        }
        if (magic > 0) {
            tell(name + "LOG_APPEND_TIME", built(magic, codec, "LOG_APPEND_TIME", 50, NOBODY, few(magic, 50)));
        }
        if (magic > 1) {
            Producer wrapping = new Producer(77, (short) 2, Integer.MAX_VALUE - 1, false);
            tell(name + "idempotent", built(magic, codec, "CREATE_TIME", 0, wrapping, few(magic, 0)));
            Producer last = new Producer(Long.MAX_VALUE, Short.MAX_VALUE, 0, true);
            tell(name + "transactional", built(magic, codec, "CREATE_TIME", 9, last, few(magic, 9)));
            byte[] stamped = built(magic, codec, "LOG_APPEND_TIME", 9, last, few(magic, 9));
            tell(name + "transactional, LOG_APPEND_TIME", stamped);
        }
    }

    /** What a broker answered to a consumer older than its log; headers it dropped, but not in 0.11. */
    private static void downConverted() throws Exception {
        for (String codec : codecs(1)) {
            byte[] plain = built(2, codec, "CREATE_TIME", 60, NOBODY, few(1, 60));
            for (int magic = 0; magic < 2; magic++) {
                Object records = call(find("MemoryRecords"), "readableRecords", ByteBuffer.wrap(plain));
                Object converted = release.startsWith("0.")
                    ? call(records, "downConvert", (byte) magic, 0L)
                    : call(call(records, "downConvert", (byte) magic, 0L, constant(find("Time"), "SYSTEM")), "records");
                String name = "magic 2 down-converted to " + magic + ", " + codec;
                tell(name, bytes((ByteBuffer) call(converted, "buffer")));
            }
        }
    }

    /** A log that has seen three releases; and the same cut off, as brokers cut it. */
    private static void mixed() throws Exception {
        ByteBuffer log = ByteBuffer.allocate(1 << 16);
        log.put(built(0, "none", "CREATE_TIME", 0, NOBODY, few(0, 0)));
        log.put(built(0, "gzip", "CREATE_TIME", 4, NOBODY, few(0, 4)));
        log.put(built(1, "none", "CREATE_TIME", 8, NOBODY, few(1, 8)));
        log.put(built(1, "none", "LOG_APPEND_TIME", 12, NOBODY, few(1, 12)));
        log.put(built(1, "snappy", "CREATE_TIME", 16, NOBODY, few(1, 16)));
        log.put(built(2, "none", "CREATE_TIME", 20, NOBODY, few(2, 20)));
        log.put(built(2, "lz4", "CREATE_TIME", 24, new Producer(5, (short) 0, 17, true), few(2, 24)));
        byte[] whole = bytes(log.flip());
        tell("mixed", whole);
        tell("mixed, cut off", Arrays.copyOf(whole, whole.length - 10));
    }

    private static void empty() throws Exception {
        Class<?> batch = find("DefaultRecordBatch");
        for (boolean isControl : new boolean[] {false, true}) {
            ByteBuffer buffer = ByteBuffer.allocate(61);
            call(
                batch, "writeEmptyHeader", buffer, (byte) 2, 1234L, (short) 3, 40, 500L, 509L, 8,
                timestampType("CREATE_TIME"), BASE_MS, isControl, isControl);
            tell(isControl ? "empty, control" : "empty", bytes(buffer.flip()));
        }
    }

    private static void markers() throws Exception {
        for (String type : new String[] {"COMMIT", "ABORT"}) {
            Object sort = constant(find("ControlRecordType"), type);
            Object marker = make(find("EndTransactionMarker"), sort, 1_000_000);
            Object records = call(
                find("MemoryRecords"), "withEndTransactionMarker", 33L, BASE_MS, 4, Long.MAX_VALUE - 1, (short) 7,
                marker);
            tell("control, " + type, bytes((ByteBuffer) call(records, "buffer")));
        }
    }

    private static void deleteHorizon() throws Exception {
        for (String codec : codecs(2)) {
            Object builder = make(
                find("MemoryRecordsBuilder"), make(find("ByteBufferOutputStream"), 1 << 16), (byte) 2, codec(codec),
                timestampType("CREATE_TIME"), 70L, NO_TIMESTAMP, 8L, (short) 1, 5, true, false, 2, 1 << 16,
                BASE_MS + 86_400_000);
            tell("magic 2, " + codec + ", delete horizon", appended(builder, few(2, 70)));
        }
    }

    private static void quorum() throws Exception {
        String voters = "[{'voterId': 1}, {'voterId': 2147483647}]";
        quorum("LeaderChangeMessage", "'leaderId': 2, 'voters': " + voters + ", 'grantingVoters': []");
        quorum("SnapshotHeaderRecord", "'lastContainedLogTimestamp': 1700000000123");
        quorum("SnapshotFooterRecord", "");
        quorum("KRaftVersionRecord", "'kRaftVersion': 1");
        quorum("VotersRecord",
            "'voters': [{'voterId': 3, 'voterDirectoryId': 'Qm_wAbCdEfGhIjKlMnOpQg', 'endpoints':"
            + " [{'name': 'CONTROLLER', 'host': 'c3.example', 'port': 65535}], 'kRaftVersionFeature':"
            + " {'minSupportedVersion': 0, 'maxSupportedVersion': 1}}]");
    }

    private static void quorum(String name, String fields) throws Exception {
        String text = ("{'version': 0" + (fields.isEmpty() ? "" : ", " + fields) + "}").replace('\'', '"');
        Object node = call(make(find("ObjectMapper")), "readTree", text);
        Object message = call(find(name + "JsonConverter"), "read", node, (short) 0);
        ByteBuffer buffer = ByteBuffer.allocate(1 << 10);
        Object records = call(find("MemoryRecords"), "with" + name, 80L, BASE_MS, 6, buffer, message);
        tell("control, " + name, bytes((ByteBuffer) call(records, "buffer")));
    }

    private static byte[] built(int magic, String codec, String type, long base, Producer producer, List<Item> items)
            throws Exception {
        Object builder = call(
            find("MemoryRecords"), "builder", ByteBuffer.allocate(1 << 20), (byte) magic, codec(codec),
            timestampType(type), base, BASE_MS + 77, producer.id, producer.epoch, producer.sequence,
            producer.isTransactional, false, 11);
        return appended(builder, items);
    }

    private static byte[] appended(Object builder, List<Item> items) throws Exception {
        for (Item item : items) {
            if (item.headers == null) {
                call(builder, "appendWithOffset", item.offset, item.timestamp, item.key, item.value);
            } else {
                call(builder, "appendWithOffset", item.offset, item.timestamp, item.key, item.value, item.headers);
            }
        }
        return bytes((ByteBuffer) call(call(builder, "build"), "buffer"));
    }

    // What the reader says

    /** The reader of 0.8.2 loses its place in compressed messages of some size: there, what was put in. */
    private static void tell(String name, byte[] raw, List<Item> items) {
        List<Object> records = new ArrayList<>();
        for (Item item : items) {
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("offset", item.offset);
            told.put("timestamp", null);
            told.put("key", item.key);
            told.put("value", item.value);
            records.add(told);
        }
        Map<String, Object> told = named(name, raw);
        told.put("records", records);
        OUT.println(json(told));
    }

    private static Map<String, Object> named(String name, byte[] raw) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("name", name);
        told.put("release", release);
        told.put("bytes", raw);
        return told;
    }

    private static void tell(String name, byte[] raw) throws Exception {
        Map<String, Object> told = named(name, raw);
        ByteBuffer buffer = ByteBuffer.wrap(raw);
        if (release.startsWith("0.9")) {
            told.put("records", legacy((Iterable<?>) call(find("MemoryRecords"), "readableRecords", buffer)));
        } else if (release.startsWith("0.10")) {
            Object records = call(find("MemoryRecords"), "readableRecords", buffer);
            told.put("records", legacy((Iterable<?>) call(records, "deepEntries")));
        } else {
            List<Object> found = new ArrayList<>();
            for (Object batch : (Iterable<?>) call(call(find("MemoryRecords"), "readableRecords", buffer), "batches")) {
                found.add(batch(batch));
            }
            told.put("batches", found);
        }
        OUT.println(json(told));
    }

    private static List<Object> legacy(Iterable<?> entries) throws Exception {
        List<Object> found = new ArrayList<>();
        for (Object entry : entries) {
            Object record = call(entry, "record");
            call(record, "ensureValid");
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("offset", call(entry, "offset"));
            boolean hasTime = !release.startsWith("0.9") && (byte) call(record, "magic") > 0;
            told.put("timestamp", hasTime ? call(record, "timestamp") : null);
            told.put("key", bytes((ByteBuffer) call(record, "key")));
            told.put("value", bytes((ByteBuffer) call(record, "value")));
            found.add(told);
        }
        return found;
    }

    private static Map<String, Object> batch(Object batch) throws Exception {
        call(batch, "ensureValid");
        Map<String, Object> told = new LinkedHashMap<>();
        for (String name : new String[] {
            "magic", "sizeInBytes", "checksum", "baseOffset", "lastOffset", "maxTimestamp", "producerId",
            "producerEpoch", "baseSequence", "partitionLeaderEpoch", "countOrNull", "isTransactional",
            "isControlBatch"}) {
            told.put(name, call(batch, name));
        }
        told.put("compressionType", call(batch, "compressionType").toString().toLowerCase());
        told.put("timestampType", call(batch, "timestampType").toString());
        if (hasMethod(find("RecordBatch"), "deleteHorizonMs")) {
            java.util.OptionalLong horizon = (java.util.OptionalLong) call(batch, "deleteHorizonMs");
            told.put("deleteHorizonMs", horizon.isPresent() ? horizon.getAsLong() : null);
        }
        List<Object> records = new ArrayList<>();
        for (Object record : (Iterable<?>) batch) {
            records.add(record(record, (boolean) told.get("isControlBatch")));
        }
        told.put("records", records);
        return told;
    }

    private static Map<String, Object> record(Object record, boolean isControl) throws Exception {
        call(record, "ensureValid");
        Map<String, Object> told = new LinkedHashMap<>();
        for (String name : new String[] {"offset", "timestamp", "sequence"}) {
            told.put(name, call(record, name));
        }
        told.put("key", bytes((ByteBuffer) call(record, "key")));
        told.put("value", bytes((ByteBuffer) call(record, "value")));
        List<Object> headers = new ArrayList<>();
        for (Object header : (Object[]) call(record, "headers")) {
            headers.add(Arrays.asList(call(header, "key"), call(header, "value")));
        }
        told.put("headers", headers);
        if (isControl) {
            String type = call(find("ControlRecordType"), "parse", call(record, "key")).toString();
            told.put("control", type);
            told.put("marker", marker(type, record));
        }
        return told;
    }

    private static Object marker(String type, Object record) throws Exception {
        if (type.equals("COMMIT") || type.equals("ABORT")) {
            Object marker = call(find("EndTransactionMarker"), "deserialize", record);
            return Map.of("coordinatorEpoch", call(marker, "coordinatorEpoch"));
        }
        Map<String, String> names = Map.of(
            "LEADER_CHANGE", "LeaderChangeMessage", "SNAPSHOT_HEADER", "SnapshotHeaderRecord", "SNAPSHOT_FOOTER",
            "SnapshotFooterRecord", "KRAFT_VERSION", "KRaftVersionRecord", "KRAFT_VOTERS", "VotersRecord");
        Object message = call(find("ControlRecordUtils"), "deserialize" + names.get(type), record);
        return call(find(names.get(type) + "JsonConverter"), "write", message, call(message, "version"));
    }

    // Values

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static long stamp(int magic, long after) {
        return magic == 0 ? NO_TIMESTAMP : BASE_MS + after;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] raw = new byte[buffer.remaining()];
        buffer.duplicate().get(raw);
        return raw;
    }

    private static Object[] headers(String... told) throws Exception {
        Object[] headers = (Object[]) java.lang.reflect.Array.newInstance(find("Header"), told.length / 2);
        for (int i = 0; i < headers.length; i++) {
            byte[] value = told[2 * i + 1] == null ? null : utf8(told[2 * i + 1]);
            headers[i] =
                find("RecordHeader").getConstructor(String.class, byte[].class).newInstance(told[2 * i], value);
        }
        return headers;
    }

    private static List<String> codecs(int magic) {
        boolean hasZstd = magic == 2 && !release.startsWith("0.") && !release.startsWith("1.");
        return hasZstd ? List.of("none", "gzip", "snappy", "lz4", "zstd") : List.of("none", "gzip", "snappy", "lz4");
    }

    /** Compression came with 3.8. */
    private static Object codec(String name) throws Exception {
        boolean isNew = !release.startsWith("0.") && !release.startsWith("1.");
        return isNew
            ? call(call(find("Compression"), "of", name), "build")
            : call(find("CompressionType"), "forName", name);
    }

    private static Object timestampType(String name) throws Exception {
        return constant(find("TimestampType"), name);
    }

    private static Object constant(Class<?> type, String name) throws Exception {
        return type.getField(name).get(null);
    }

    private static String json(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream()
                .map(entry -> json(entry.getKey()) + ":" + json(entry.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List) {
            return ((List<?>) value).stream().map(RecordVectors::json).collect(Collectors.joining(",", "[", "]"));
        }
        if (value instanceof byte[]) {
            return '"' + HexFormat.of().formatHex((byte[]) value) + '"';
        }
        return value instanceof String ? '"' + (String) value + '"' : String.valueOf(value);
    }

    // Classes and methods by name

    private static final String[] PACKAGES = {
        "org.apache.kafka.common.record.internal.", "org.apache.kafka.common.record.",
        "org.apache.kafka.common.compress.",
        "org.apache.kafka.common.utils.internals.", "org.apache.kafka.common.utils.", "org.apache.kafka.common.header.",
        "org.apache.kafka.common.header.internals.", "org.apache.kafka.common.message.",
        "com.fasterxml.jackson.databind."};

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            try {
                return Class.forName(place + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static boolean hasMethod(String name) throws Exception {
        return hasMethod(find("MemoryRecords"), name);
    }

    private static boolean hasMethod(Class<?> type, String name) {
        return Arrays.stream(type.getMethods()).anyMatch(method -> method.getName().equals(name));
    }

    /** Call a method of an object, or of a class. */
    private static Object call(Object target, String name, Object... arguments) throws Exception {
        Class<?> type = target instanceof Class ? (Class<?>) target : target.getClass();
        for (Method method : type.getMethods()) {
            if (method.getName().equals(name) && !method.isBridge() && takes(method, arguments)) {
                method.setAccessible(true);
                try {
                    return method.invoke(target, arguments);
                } catch (InvocationTargetException failed) {
                    throw new IllegalStateException(release + ": " + method, failed.getCause());
                }
            }
        }
        throw new NoSuchMethodException(release + ": " + type + "." + name + Arrays.toString(arguments));
    }

    private static Object make(Class<?> type, Object... arguments) throws Exception {
        for (Constructor<?> constructor : type.getConstructors()) {
            if (takes(constructor, arguments)) {
                return constructor.newInstance(arguments);
            }
        }
        throw new NoSuchMethodException(release + ": " + type + Arrays.toString(arguments));
    }

    private static boolean takes(Executable method, Object[] arguments) {
        Class<?>[] types = method.getParameterTypes();
        boolean fits = types.length == arguments.length;
        for (int i = 0; fits && i < types.length; i++) {
            Object argument = arguments[i];
            fits = argument == null ? !types[i].isPrimitive() : boxed(types[i]).isInstance(argument);
        }
        return fits;
    }

    private static Class<?> boxed(Class<?> type) {
        return java.lang.invoke.MethodType.methodType(type).wrap().returnType();
    }
}
