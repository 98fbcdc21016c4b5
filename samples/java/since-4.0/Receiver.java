import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A plugin without which brokers request no client metrics (KIP-714). It logs what it receives. */
@SuppressWarnings("removal")
public class Receiver implements MetricsReporter, ClientTelemetry {
  public ClientTelemetryReceiver clientReceiver() {
    return (context, payload) -> System.out.printf(
        "Telemetry:{\"client_id\":\"%s\",\"client_instance_id\":\"%s\",\"terminating\":%b,\"content_type\":\"%s\",\"bytes\":%d}%n",
        context.clientId(), payload.clientInstanceId(), payload.isTerminating(), payload.contentType(),
        payload.data().remaining());
  }

  public void configure(Map<String, ?> configs) {}

  public void init(List<KafkaMetric> metrics) {}

  public void metricChange(KafkaMetric metric) {}

  public void metricRemoval(KafkaMetric metric) {}

  public void close() {}
}
