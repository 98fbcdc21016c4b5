import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.state.HostInfo;

/**
 * What the members of a group tell each other in bytes for which Kafka has no schema files but classes written by
 * hand: a line of JSON for each, with the bytes and with what was put in, named as a schema file would name it.
 */
public final class GroupVectors {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final String ODD = "\0é𝄞";

    private static String release;

    /** Arguments: the release whose jars these are. */
    public static void main(String[] arguments) throws Exception {
        release = arguments[0];
        sticky();
        for (int version = 0; version < 3; version++) {
            connect(version);
        }
        for (int version = 1; version <= 11; version++) {
            streams(version);
        }
    }

    private static void tell(String message, int version, ByteBuffer bytes, Map<String, Object> json) throws Exception {
        byte[] raw = new byte[bytes.remaining()];
        bytes.get(raw);
        Map<String, Object> line = map("message", message, "version", version, "release", release);
        line.put("bytes", HexFormat.of().formatHex(raw));
        line.put("json", json);
        System.out.println(MAPPER.writeValueAsString(line));
    }

    private static Map<String, Object> map(Object... told) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < told.length; i += 2) {
            map.put((String) told[i], told[i + 1]);
        }
        return map;
    }

    // Assignors that keep what members had

    private static void sticky() throws Exception {
        List<List<TopicPartition>> owned = List.of(
            List.of(),
            List.of(new TopicPartition("orders", 0)),
            List.of(new TopicPartition("orders", 7), new TopicPartition(ODD, Integer.MAX_VALUE),
                new TopicPartition("orders", 1)));
        for (List<TopicPartition> partitions : owned) {
            for (int generation : new int[] {0, 7, Integer.MAX_VALUE}) {
                ConsumerPartitionAssignor.Assignment assignment = new ConsumerPartitionAssignor.Assignment(partitions);
                ConsumerGroupMetadata member =
                    new ConsumerGroupMetadata("group", generation, "member", Optional.empty());
                StickyAssignor sticky = new StickyAssignor();
                sticky.onAssignment(assignment, member);
                // The assignor puts them into such a map too, which decides about their order.
                Map<String, List<Integer>> topics = new HashMap<>();
                for (TopicPartition each : partitions) {
                    topics.computeIfAbsent(each.topic(), topic -> new ArrayList<>()).add(each.partition());
                }
                List<Object> previous = new ArrayList<>();
                topics.forEach((topic, numbers) -> previous.add(map("topic", topic, "partitions", numbers)));
                tell("StickyAssignorUserData", 1, sticky.subscriptionUserData(Set.of()),
                    map("previousAssignment", previous, "generation", generation));
                CooperativeStickyAssignor cooperative = new CooperativeStickyAssignor();
                cooperative.onAssignment(assignment, member);
                tell("CooperativeStickyAssignorUserData", 0, cooperative.subscriptionUserData(Set.of()),
                    map("generation", generation));
            }
        }
    }

    // Workers of Kafka Connect

    private static final List<String> CONNECTORS = List.of("source", "жук");
    private static final List<ConnectorTaskId> TASKS = List.of(
        new ConnectorTaskId("source", 0), new ConnectorTaskId("source", Integer.MAX_VALUE),
        new ConnectorTaskId("sink", 3));

    private static void connect(int version) throws Exception {
        for (boolean isEmpty : new boolean[] {true, false}) {
            List<String> connectors = isEmpty ? List.of() : CONNECTORS;
            List<ConnectorTaskId> tasks = isEmpty ? List.of() : TASKS;
            short error = (short) (isEmpty ? 0 : 1);
            long offset = isEmpty ? -1 : Long.MAX_VALUE;
            String url = isEmpty ? "" : "http://127.0.0.1:8083/";
            Map<String, Object> json = map(
                "error", error, "leader", "worker-1", "leaderUrl", url, "configOffset", offset,
                "assignment", assignment(connectors, tasks));
            if (version == 0) {
                behindVersion("ConnectWorkerMetadata", 0,
                    ConnectProtocol.serializeMetadata(new ConnectProtocol.WorkerState(url, offset)),
                    map("url", url, "configOffset", offset));
                ConnectProtocol.Assignment told =
                    new ConnectProtocol.Assignment(error, "worker-1", url, offset, connectors, tasks);
                behindVersion("ConnectAssignment", 0, ConnectProtocol.serializeAssignment(told), json);
                continue;
            }
            ExtendedAssignment told = new ExtendedAssignment(
                (short) version, error, "worker-1", url, offset, connectors, tasks, connectors, tasks,
                isEmpty ? 0 : 300_000);
            ByteBuffer bytes = IncrementalCooperativeConnectProtocol.serializeAssignment(told, version == 2);
            json.put("revoked", assignment(connectors, tasks));
            json.put("delay", told.delay());
            behindVersion("ConnectAssignment", version, bytes.duplicate(), json);
            for (ExtendedAssignment had : new ExtendedAssignment[] {null, told}) {
                behindVersion("ConnectWorkerMetadata", version,
                    IncrementalCooperativeConnectProtocol.serializeMetadata(
                        new ExtendedWorkerState(url, offset, had), version == 2),
                    map("url", url, "configOffset", offset, "allocation", had == null ? null : bytes.array()));
            }
        }
    }

    /** To Connect a connector is one more task of itself, of number -1. */
    private static List<Object> assignment(Collection<String> connectors, Collection<ConnectorTaskId> tasks) {
        Map<String, List<Integer>> found = new LinkedHashMap<>();
        connectors.forEach(connector -> found.computeIfAbsent(connector, none -> new ArrayList<>()).add(-1));
        tasks.forEach(task -> found.computeIfAbsent(task.connector(), none -> new ArrayList<>()).add(task.task()));
        List<Object> json = new ArrayList<>();
        found.forEach((connector, numbers) -> json.add(map("connector", connector, "tasks", numbers)));
        return json;
    }

    private static void behindVersion(String message, int version, ByteBuffer bytes, Map<String, Object> json)
            throws Exception {
        if (bytes.getShort() != version) {
            throw new IllegalStateException(message + " is not of version " + version);
        }
        tell(message, version, bytes, json);
    }

    // Kafka Streams

    private static void streams(int version) throws Exception {
        Set<TopicPartition> some = set(new TopicPartition("orders", 0), new TopicPartition(ODD, Integer.MAX_VALUE));
        Set<TopicPartition> one = set(new TopicPartition("payments", 5));
        Map<HostInfo, Set<TopicPartition>> active = new LinkedHashMap<>();
        active.put(new HostInfo("10.0.0.1", 8080), some);
        active.put(new HostInfo("höst", 65535), one);
        Map<HostInfo, Set<TopicPartition>> standby = new LinkedHashMap<>();
        standby.put(new HostInfo("10.0.0.2", 1), one);
        String topology = version < 10 ? null : "jöin𝄞";
        List<TaskId> tasks = List.of(new TaskId(0, 1, topology), new TaskId(Integer.MAX_VALUE, 0), new TaskId(3, 4));
        Map<TaskId, Set<TopicPartition>> waiting = new LinkedHashMap<>();
        waiting.put(new TaskId(1, 2), some);
        waiting.put(new TaskId(1, 3, topology), new HashSet<>());
        streams(version, List.of(), Map.of(), Map.of(), Map.of(), 0, null);
        streams(version, tasks, waiting, active, standby, 1, 1_700_000_000_000L);
        streams(version, tasks.subList(1, 2), Map.of(), standby, active, Integer.MIN_VALUE, -1L);
    }

    private static void streams(
            int version, List<TaskId> active, Map<TaskId, Set<TopicPartition>> standby,
            Map<HostInfo, Set<TopicPartition>> hosts, Map<HostInfo, Set<TopicPartition>> standbyHosts, int error,
            Long next) throws Exception {
        AssignmentInfo info = new AssignmentInfo(version, active, standby, hosts, standbyHosts, error);
        if (next != null) {
            info.setNextRebalanceTime(next);
        }
        Map<String, Object> json = map("version", version);
        if (version >= 3) {
            json.put("latestSupportedVersion", 11);
        }
        json.put("activeTasks", active.stream().map(task -> task(task, version)).toList());
        List<Object> waiting = new ArrayList<>();
        standby.forEach((task, partitions) -> {
            Map<String, Object> told = task(task, version);
            told.put("partitions", partitions.stream()
                .map(each -> map("topic", each.topic(), "partition", each.partition())).toList());
            waiting.add(told);
        });
        json.put("standbyTasks", waiting);
        if (version >= 2 && version < 5) {
            json.put("partitionsByHost", hosts(hosts, null));
        }
        if (version >= 5) {
            Set<String> topics = new HashSet<>(); // as the encoder's, in whose order they are written
            hosts.values().forEach(set -> set.forEach(one -> topics.add(one.topic())));
            if (version > 5) {
                standbyHosts.values().forEach(set -> set.forEach(one -> topics.add(one.topic())));
            }
            Map<String, Integer> indices = new LinkedHashMap<>();
            topics.forEach(topic -> indices.put(topic, indices.size()));
            List<Object> dictionary = new ArrayList<>();
            indices.forEach((topic, index) -> dictionary.add(map("index", index, "topic", topic)));
            json.put("topicDictionary", dictionary);
            json.put("activePartitionsByHost", hosts(hosts, indices));
            if (version >= 6) {
                json.put("standbyPartitionsByHost", hosts(standbyHosts, indices));
            }
        }
        if (version >= 4) {
            json.put("errorCode", error);
        }
        if (version >= 7) {
            json.put("nextRebalanceMs", info.nextRebalanceMs());
        }
        ByteBuffer bytes = info.encode();
        if (version > 5 && !AssignmentInfo.decode(bytes.duplicate()).equals(info)) {
            throw new IllegalStateException("Kafka reads something else than it wrote in version " + version);
        }
        tell("StreamsAssignmentInfo", version, bytes, json);
    }

    private static Map<String, Object> task(TaskId task, int version) {
        Map<String, Object> json = map("subtopology", task.subtopology(), "partition", task.partition());
        if (version >= 10) {
            json.put("namedTopology", task.topologyName() == null ? "" : task.topologyName());
        }
        return json;
    }

    private static List<Object> hosts(Map<HostInfo, Set<TopicPartition>> hosts, Map<String, Integer> indices) {
        List<Object> json = new ArrayList<>();
        hosts.forEach((host, partitions) -> json.add(map("host", host.host(), "port", host.port(), "partitions",
            partitions.stream().map(each -> indices == null
                ? map("topic", each.topic(), "partition", each.partition())
                : map("topicIndex", indices.get(each.topic()), "partition", each.partition())).toList())));
        return json;
    }

    private static Set<TopicPartition> set(TopicPartition... partitions) {
        return new LinkedHashSet<>(Arrays.asList(partitions));
    }
}
