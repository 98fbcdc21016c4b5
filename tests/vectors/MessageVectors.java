import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Random instances of every generated message class on the class path, as JSON and as bytes, a line each.
 *
 * <p>Values are drawn along the schema that the class has for a version, as the JSON that its converter reads. The
 * object that comes of it writes the bytes, and the converter writes the JSON that is kept. Two things the converter
 * leaves out of its JSON, and this program puts them in: what is in a records field, and tags that the class does not
 * know ("_tags"). Classes without a converter get their object through Schema and Struct, keep the JSON they were drawn
 * as, and no tags: which of them a class leaves out as its defaults is known only to the class.
 */
public final class MessageVectors {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final int INSTANCES = 10;
    private static final int MOST_VALUES = 250;

    /** What the first instances are like, one each, and the rest; MINIMAL has nothing that may be left out. */
    private enum Sort { MINIMAL, TYPICAL, EXTREME, ANY }

    private final Random random;
    private final Sort sort;
    private int left = MOST_VALUES;
    private boolean isTagging;

    private MessageVectors(Random random, Sort sort) {
        this.random = random;
        this.sort = sort;
    }

    /** Arguments: the release whose jars these are, and a pattern of the names that count. */
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (Map.Entry<String, String> entry : messages().entrySet()) {
            if (!entry.getKey().matches(arguments[1])) {
                continue;
            }
            Class<?> type = Class.forName(entry.getValue());
            Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
            Message any = (Message) type.getConstructor().newInstance();
            for (short version = any.lowestSupportedVersion(); version <= any.highestSupportedVersion(); version++) {
                for (int instance = 0; instance < INSTANCES; instance++) {
                    Sort sort = Sort.values()[Math.min(instance, Sort.ANY.ordinal())];
                    String seed = String.join("/", arguments[0], entry.getKey(), "" + version, "" + instance);
                    MessageVectors vectors = new MessageVectors(new Random(mixed(seed.hashCode())), sort);
                    ObjectNode vector = vectors.vector(type, schemas[version], version);
                    ObjectNode line = JSON.objectNode().put("message", entry.getKey()).put("version", version);
                    line.put("release", arguments[0]).setAll(vector);
                    out.println(MAPPER.writeValueAsString(line));
                }
            }
        }
        out.flush();
    }

    /** Simple name -> name of every generated class in the jars of the class path. */
    private static Map<String, String> messages() throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!new File(path).getName().startsWith("kafka")) {
                continue;
            }
            try (JarFile jar = new JarFile(path)) {
                jar.stream()
                    .map(file -> file.getName())
                    .filter(name -> name.matches("org/apache/kafka/.*/(message|metadata|generated)/[^$]*[.]class"))
                    .map(name -> name.substring(0, name.length() - ".class".length()).replace('/', '.'))
                    .filter(MessageVectors::isMessage)
                    .forEach(name -> found.put(name.substring(name.lastIndexOf('.') + 1), name));
            }
        }
        return found;
    }

    private static boolean isMessage(String name) {
        try {
            Class<?> type = Class.forName(name, false, MessageVectors.class.getClassLoader());
            return Message.class.isAssignableFrom(type) && !type.isInterface();
        } catch (ClassNotFoundException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Class<?> converter(Class<?> type) {
        try {
            return Class.forName(type.getName() + "JsonConverter");
        } catch (ClassNotFoundException none) {
            return null;
        }
    }

    private ObjectNode vector(Class<?> type, Schema schema, short version) throws Exception {
        Class<?> converter = converter(type);
        isTagging = converter != null;
        ObjectNode drawn = struct(schema);
        Message message;
        JsonNode json = drawn;
        if (converter != null) {
            Method read = converter.getMethod("read", JsonNode.class, short.class);
            message = (Message) read.invoke(null, drawn, version);
            json = (JsonNode) converter.getMethod("write", type, short.class).invoke(null, message, version);
        } else {
            message = (Message) type.getConstructor().newInstance();
            ByteBuffer plain = ByteBuffer.allocate(1 << 20);
            schema.write(plain, built(schema, drawn));
            message.read(new ByteBufferAccessor(plain.flip()), version);
        }
        keepRecords(schema, drawn, json);
        if (isFlexible(schema) && (sort == Sort.EXTREME || sort == Sort.ANY && random.nextInt(4) == 0)) {
            ObjectNode tags = JSON.objectNode();
            for (int tag : new int[] {100, 20000, (1 << 28) + random.nextInt(3)}) {
                byte[] raw = bytes();
                message.unknownTaggedFields().add(new RawTaggedField(tag, raw));
                tags.put(Integer.toString(tag), HexFormat.of().formatHex(raw));
            }
            ((ObjectNode) json).set("_tags", tags);
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(type + " is shorter than it said");
        }
        Message again = (Message) type.getConstructor().newInstance();
        again.read(new ByteBufferAccessor(buffer.flip()), version);
        if (!again.equals(message)) {
            throw new IllegalStateException(type + " reads something else than it wrote");
        }
        ObjectNode vector = JSON.objectNode().put("bytes", HexFormat.of().formatHex(buffer.array()));
        vector.set("json", json);
        return vector;
    }

    // Drawing

    /** Seeds that differ in a few bits have first numbers that differ in a few bits. */
    private static long mixed(long seed) {
        long bits = seed * 0x9e3779b97f4a7c15L;
        return bits ^ bits >>> 29;
    }

    private ObjectNode struct(Schema schema) {
        ObjectNode drawn = JSON.objectNode();
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                for (Field tagged : tagged((TaggedFields) bound.def.type).values()) {
                    if (isTagging && (sort == Sort.TYPICAL || sort != Sort.MINIMAL && random.nextInt(3) > 0)) {
                        drawn.set(camel(tagged.name), value(tagged.type, isNullable(tagged)));
                    }
                }
            } else {
                drawn.set(camel(bound.def.name), value(bound.def.type, isNullable(bound.def)));
            }
        }
        return drawn;
    }

    private JsonNode value(Type type, boolean isNullable) {
        left--;
        boolean rarely = sort == Sort.EXTREME || sort == Sort.ANY;
        if (isNullable && (sort == Sort.MINIMAL || rarely && random.nextInt(4) == 0)) {
            return JSON.nullNode();
        }
        if (type.isArray()) {
            return array(type.arrayElementType().get());
        }
        if (type instanceof Schema) {
            return struct((Schema) type);
        }
        switch (name(type)) {
            case "BOOLEAN": return JSON.booleanNode(sort != Sort.MINIMAL && random.nextBoolean());
            case "INT8": return JSON.numberNode((byte) integer(8));
            case "INT16": return JSON.numberNode((short) integer(16));
            case "UINT16": return JSON.numberNode((int) integer(16) & 0xffff);
            case "INT32": return JSON.numberNode((int) integer(32));
            case "UINT32": return JSON.numberNode(integer(32) & 0xffffffffL);
            case "INT64": return JSON.numberNode(integer(64));
            case "FLOAT64": return JSON.numberNode(pick(FLOATS));
            case "UUID": return JSON.textNode(uuid());
            case "STRING": return JSON.textNode(string());
            default: return JSON.binaryNode(bytes()); // BYTES and RECORDS
        }
    }

    private ArrayNode array(Type element) {
        ArrayNode drawn = JSON.arrayNode();
        int count = sort == Sort.MINIMAL ? 0 : 1 + random.nextInt(sort == Sort.TYPICAL ? 2 : 3);
        if (count > 0 && sort != Sort.TYPICAL && random.nextInt(6) == 0) {
            count = 0;
        }
        boolean isSmall = !(element instanceof Schema) || ((Schema) element).numFields() < 4;
        if (sort == Sort.EXTREME && left > 150 && isSmall && random.nextInt(3) == 0) {
            count = 127 + random.nextInt(3); // where the length of a varint changes
        }
        for (int i = 0; i < count && (left > 0 || i == 0); i++) {
            drawn.add(value(element, false));
        }
        return drawn;
    }

    private static final Double[] FLOATS = {0.0, -1.5, 1e300, Double.MIN_VALUE, -Double.MAX_VALUE, 0.1};
    private static final String[] STRINGS = {"", "a", "orders", "group-1", "client.id", "10.0.0.1", "rack_b"};
    private static final String[] ODD_STRINGS = {
        "", "\0", "ä", "Жук", "中文", "𝄞🐘", "\"\\\n\t", "\uffff", "é".repeat(63), "x".repeat(126), "x".repeat(127),
        "𝄞".repeat(32), "~".repeat(300)
    };

    private long integer(int bits) {
        long least = -1L << bits - 1;
        switch (sort) {
            case MINIMAL: return 0;
            case TYPICAL: return random.nextInt(100);
            case EXTREME: return pick(new Long[] {least, ~least, -1L, 0L, 1L, least + 1});
            default: return random.nextLong() >> 64 - 1 - random.nextInt(bits);
        }
    }

    private String string() {
        switch (sort) {
            case MINIMAL: return "";
            case TYPICAL: return pick(STRINGS);
            default: return pick(ODD_STRINGS);
        }
    }

    private byte[] bytes() {
        int size = sort == Sort.MINIMAL ? 0 : sort == Sort.TYPICAL ? 5 : pick(new Integer[] {0, 1, 17, 126, 127, 300});
        byte[] drawn = new byte[size];
        for (int i = 0; i < size; i++) {
            drawn[i] = (byte) (i * 7 - size);
        }
        return drawn;
    }

    private String uuid() {
        long[][] some = {{0, 0}, {0, 1}, {-1, -1}, {0x0123456789abcdefL, 0xfedcba9876543210L}};
        long[] drawn = sort == Sort.MINIMAL ? some[0] : sort == Sort.ANY ? random.longs(2).toArray() : pick(some);
        byte[] raw = ByteBuffer.allocate(16).putLong(drawn[0]).putLong(drawn[1]).array();
        return Base64.getUrlEncoder().withoutPadding().encodeToString(raw);
    }

    private <T> T pick(T[] values) {
        return values[random.nextInt(values.length)];
    }

    // Schemas

    private static String name(Type type) {
        return type.toString().replace("COMPACT_", "").replace("NULLABLE_", "");
    }

    /** Kafka 3 has one type for records that may be null and those of FetchSnapshot, which may not. */
    private static boolean isNullable(Field field) {
        return field.type.isNullable() && !field.name.equals("unaligned_records");
    }

    /** What the converters call a field that is called so in the schemas, where isKRaft becomes is_kraft. */
    private static String camel(String name) {
        StringBuilder text = new StringBuilder();
        for (String word : name.replace("kraft", "k_raft").split("_")) {
            text.append(text.length() == 0 ? word : word.substring(0, 1).toUpperCase() + word.substring(1));
        }
        return text.toString();
    }

    /** Its method fields() came with Kafka 4. */
    @SuppressWarnings("unchecked")
    private static Map<Integer, Field> tagged(TaggedFields type) {
        try {
            java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");
            fields.setAccessible(true);
            return (Map<Integer, Field>) fields.get(type);
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static boolean isFlexible(Schema schema) {
        BoundField[] fields = schema.fields();
        return fields.length > 0 && fields[fields.length - 1].def.type instanceof TaggedFields;
    }

    private static void keepRecords(Schema schema, JsonNode drawn, JsonNode json) {
        for (BoundField bound : schema.fields()) {
            String key = camel(bound.def.name);
            Type type = bound.def.type;
            if (name(type).equals("RECORDS")) {
                ((ObjectNode) json).set(key, drawn.get(key));
            } else if (type.isArray() && type.arrayElementType().get() instanceof Schema && drawn.get(key).isArray()) {
                for (int i = 0; i < drawn.get(key).size(); i++) {
                    keepRecords((Schema) type.arrayElementType().get(), drawn.get(key).get(i), json.get(key).get(i));
                }
            }
        }
    }

    // Messages without a converter

    private static Object built(Type type, JsonNode drawn) throws Exception {
        if (type instanceof TaggedFields) {
            return new TreeMap<Integer, Object>();
        }
        if (drawn.isNull()) {
            return null;
        }
        if (type instanceof Schema) {
            Struct struct = new Struct((Schema) type);
            for (BoundField bound : ((Schema) type).fields()) {
                struct.set(bound, built(bound.def.type, drawn.get(camel(bound.def.name))));
            }
            return struct;
        }
        if (type.isArray()) {
            Object[] values = new Object[drawn.size()];
            for (int i = 0; i < values.length; i++) {
                values[i] = built(type.arrayElementType().get(), drawn.get(i));
            }
            return values;
        }
        switch (name(type)) {
            case "INT8": return (byte) drawn.intValue();
            case "INT16": return (short) drawn.intValue();
            case "INT32": return drawn.intValue();
            case "INT64": return drawn.longValue();
            case "UUID": return type.read(ByteBuffer.wrap(Base64.getUrlDecoder().decode(drawn.textValue())));
            case "STRING": return drawn.textValue();
            case "BYTES": return ByteBuffer.wrap(drawn.binaryValue());
            default: throw new IllegalArgumentException(type + " in a message without a converter");
        }
    }
}
