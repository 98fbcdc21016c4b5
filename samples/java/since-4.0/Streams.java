import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Counts words: through a repartition topic, with a store in memory whose changes go to a changelog topic. */
public class Streams extends Reporter {
  public static void main(String[] steps) throws Exception {
    steps(steps, Map.of("count words", Streams::count));
  }

  static void count(JsonNode todo) throws Exception {
    Properties config = config(todo);
    StreamsBuilder builder = new StreamsBuilder();
    var store = Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long());
    builder.stream(todo.get("from").asText(), Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> Arrays.asList(line.trim().split(" ")))
        .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
        .count(store)
        .toStream()
        .to(todo.get("to").asText(), Produced.with(Serdes.String(), Serdes.Long()));
    try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
      streams.start();
      Thread.sleep(todo.get("seconds").asInt() * 1000L);
      for (ThreadMetadata thread : streams.metadataForLocalThreads())
        group(thread.consumerClientId(), config.getProperty("application.id"), "assigned",
            thread.activeTasks().stream().flatMap(task -> task.topicPartitions().stream())
                .map(p -> List.of(p.topic(), p.partition())).toList());
      streams.close(Duration.ofSeconds(5));
    }
  }
}
