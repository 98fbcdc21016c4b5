import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;

/** Runs steps given as JSON; prints what clients know as JSON lines, whose "kind" is a list of the truth file. */
public class Reporter {
  static final ObjectMapper JSON = new ObjectMapper();

  interface Step {
    void take(JsonNode todo) throws Exception;
  }

  static void steps(String[] steps, Map<String, Step> known) throws Exception {
    for (String step : steps) {
      JsonNode todo = JSON.readTree(step);
      known.get(todo.get("do").asText()).take(todo);
    }
  }

  static Properties config(JsonNode todo) {
    Properties config = new Properties();
    todo.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
    return config;
  }

  static List<String> names(JsonNode list) {
    List<String> names = new ArrayList<>();
    list.forEach(item -> names.add(item.isObject() ? item.get("name").asText() : item.asText()));
    return names;
  }

  /** Of names and values by turns; unlike those of Map.of they keep their order. */
  static Map<String, Object> map(Object... pairs) {
    Map<String, Object> map = new LinkedHashMap<>();
    for (int i = 0; i < pairs.length; i += 2) map.put((String) pairs[i], pairs[i + 1]);
    return map;
  }

  static synchronized void report(String kind, Map<String, ?> known) {
    ObjectNode line = JSON.valueToTree(known);
    System.out.println(line.put("kind", kind));
  }

  static void attempt(String client, String doing, Callable<?> step) {
    try {
      step.call();
    } catch (Throwable error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      report("errors", map("client_id", client, "doing", doing, "error", cause.toString()));
    }
  }

  static Object payload(byte[] data) {
    if (data == null) return null;
    if (data.length > 200) return Map.of("bytes", data.length);
    String text = new String(data, StandardCharsets.UTF_8);
    boolean exact = Arrays.equals(text.getBytes(StandardCharsets.UTF_8), data);
    return exact ? text : Map.of("base64", Base64.getEncoder().encodeToString(data));
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** A record's key and value: "value 3 value 3 ..." as often as "repeat" says. */
  static byte[] key(int number) {
    return bytes("key-" + number);
  }

  static byte[] value(JsonNode todo, int number) {
    return bytes(("value " + number + " ").repeat(todo.path("repeat").asInt(1)));
  }

  /** An endless step ends when something comes on stdin. */
  static boolean enough(JsonNode todo) throws Exception {
    return todo.has("endless") && System.in.available() > 0;
  }

  static Map<String, Object> known(String client, String topic, byte[] key, byte[] value, List<?> headers) {
    Map<String, Object> known = new LinkedHashMap<>();
    known.put("client_id", client);
    known.put("topic", topic);
    known.put("key", payload(key));
    known.put("value", payload(value));
    known.put("headers", headers);
    return known;
  }

  static Map<String, Object> sent(Properties config, String topic, byte[] key, byte[] value, List<?> headers) {
    Map<String, Object> known = known(config.getProperty("client.id"), topic, key, value, headers);
    known.put("codec", config.getProperty("compression.type", "none"));
    known.put("acks", Integer.parseInt(config.getProperty("acks", "-1").replace("all", "-1")));
    known.put("partition", null);
    known.put("offset", null);
    known.put("error", null);
    return known;
  }

  static void got(Map<String, Object> known, int partition, long offset) {
    known.put("partition", partition);
    known.put("offset", offset);
    report("consumed", known);
  }

  static void group(String client, String group, String event, List<?> partitions) {
    report("groups", map("client_id", client, "group_id", group, "event", event, "partitions", partitions));
  }

  static void commit(String client, String group, String topic, int partition, long offset) {
    report("commits", map("client_id", client, "group_id", group, "topic", topic, "partition", partition,
        "offset", offset));
  }

  /** "members": two configurations. The second comes `later` ms after the first and goes before it. */
  static void pair(JsonNode todo, Step consume) throws Exception {
    List<Thread> members = new ArrayList<>();
    for (JsonNode member : todo.get("members")) {
      Thread thread = new Thread(() -> attempt(config(member).getProperty("client.id"), "consume", () -> {
        consume.take(member);
        return null;
      }));
      members.add(thread);
      thread.start();
      Thread.sleep(todo.path("later").asInt(2500));
    }
    for (Thread member : members) member.join();
  }
}
